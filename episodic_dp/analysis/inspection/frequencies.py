"""How often units were really drawn, beside how often theory says.

The steps of a plan are independent, so the number of steps that draw a unit of
rate eta is Binomial(steps, eta). The sampler of training is run with a public
key on the public sizes alone: no data are touched.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from scipy import special

from episodic_dp import plan as plan_lib
from episodic_dp.analysis.inspection import rates as rates_lib
from episodic_dp.analysis.inspection import wording
from episodic_dp.output import plotting

STEPS = 300
# More work than this takes longer than a few seconds.
_MOST_SLOTS = 2**21
_MOST_UNITS = 2**22
_BARS = 30
# Stages whose steps are independent of one another.
_INDEPENDENT = (plan_lib.FixedSize, plan_lib.Poisson, plan_lib.All)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Frequencies:
  """How often the units of one level were drawn.

  Attributes:
    level: its name.
    steps: the number of draws.
    times_drawn: int64[units], how many of them held each unit.
    inclusion: eta of the units in one draw.
    groups: the units of one primary unit are drawn together; so many groups of
      one size would tell as much as the primary units do.
  """

  level: str
  steps: int
  times_drawn: np.ndarray
  inclusion: rates_lib.Spread
  groups: float

  @property
  def expected(self) -> float:
    """The mean of eta over the units."""
    found = self.inclusion
    return float((found.values * found.units).sum() / found.units.sum())

  @property
  def observed(self) -> float:
    """The mean over the units of the share of draws that held them."""
    return float(self.times_drawn.mean() / self.steps)

  @property
  def error(self) -> float:
    """Half the 95 % interval of `observed`, at most.

    As wide as it is where a primary unit is drawn with all that it holds.
    """
    eta = self.expected
    return 1.96 * math.sqrt(eta * (1 - eta) / (self.steps * self.groups))


def why_not_counted(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> str:
  """Why nothing is counted, as a sentence; "" where it is cheap."""
  if not all(isinstance(stage, _INDEPENDENT) for stage in plan.stages):
    return (
        "Draws are not counted: the steps of this plan are not independent of"
        " one another."
    )
  slots = math.prod(plan_lib.capacities(hierarchy, plan))
  if slots > _MOST_SLOTS // 16 or hierarchy.num_leaves > _MOST_UNITS:
    return (
        f"Draws are not counted: {wording.count(hierarchy.num_leaves)} examples"
        f" and {wording.count(slots)} slots a step would take too long."
    )
  return ""


def count_draws(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    levels: Sequence[rates_lib.Rates],
    *,
    seed: int,
    steps: int = STEPS,
) -> tuple[Frequencies, ...]:
  """Draws `steps` samples and counts every unit; one tree per task if many.

  Args:
    hierarchy: the public sizes.
    plan: its stages are drawn; an episode changes nothing but form
      "independent", of which one task is drawn.
    levels: the rates of the levels.
    seed: public, 0 to 2^32 - 1.
    steps: how many draws.
  """
  drawn: dict[int, np.ndarray] = {}
  for k in reversed(range(hierarchy.depth)):
    if k not in drawn:
      drawn |= _count(hierarchy, plan, k, seed, steps)
  return tuple(
      Frequencies(
          level=one.level,
          steps=steps,
          times_drawn=drawn[k],
          inclusion=one.inclusion,
          groups=_groups(hierarchy, k),
      )
      for k, one in enumerate(levels)
  )


def _groups(hierarchy: plan_lib.Hierarchy, level: int) -> float:
  """(Σ n)² / Σ n² of the numbers n of the level's units by primary unit."""
  if hierarchy.sizes is not None:
    return float(hierarchy.num_units(0))
  held: np.ndarray = np.ones(hierarchy.num_units(level))
  for k in range(level, 0, -1):
    parents = hierarchy.parents(k)
    held = np.bincount(parents, held, minlength=hierarchy.num_units(k - 1))
  return float(held.sum() ** 2 / np.square(held).sum())


def _count(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    lowest: int,
    seed: int,
    steps: int,
) -> dict[int, np.ndarray]:
  """Counts of the level `lowest` and of those above it that show in its draws.

  A unit that was drawn shows as long as each stage below surely draws a child
  of it; its first child then holds its place.

  Returns:
    level -> int64[units].
  """
  # Lazy import: what is not counted is told without JAX.
  import jax
  import jax.numpy as jnp

  from episodic_dp import sampling

  top = _upper_levels(hierarchy, lowest + 1)
  stages = dataclasses.replace(
      plan, stages=plan.stages[: lowest + 1], episode=None
  )
  shown = [lowest]
  while shown[-1] and _surely_draws(hierarchy, plan, shown[-1]):
    shown.append(shown[-1] - 1)

  @jax.jit
  def drawn(key):
    def add(step, totals):
      units, mask = sampling.sample(key, top, stages, step)
      added = []
      for k, total in zip(shown, totals):
        added.append(total.at[units.ravel()].add(mask.ravel().astype(int)))
        units, mask = _parents(top, k, units[..., 0]), mask[..., 0]
      return tuple(added)

    zeros = tuple(jnp.zeros(hierarchy.num_units(k), int) for k in shown)
    return jax.lax.fori_loop(0, steps, add, zeros)

  totals = drawn(jax.random.key(seed))
  return {k: np.asarray(t, np.int64) for k, t in zip(shown, totals)}


def _upper_levels(
    hierarchy: plan_lib.Hierarchy, depth: int
) -> plan_lib.Hierarchy:
  """The sizes of the first `depth` levels.

  Leaves are their own rows: where they lie in the data does not matter here.
  """
  sizes, offsets = hierarchy.sizes, hierarchy.offsets
  return plan_lib.Hierarchy(
      levels=hierarchy.levels[:depth],
      sizes=None if sizes is None else sizes[:depth],
      offsets=None if offsets is None else offsets[:depth],
  )


def _surely_draws(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan, level: int
) -> bool:
  """Whether the stage draws at least one child of every chosen unit."""
  never_none = isinstance(
      plan.stages[level], (plan_lib.FixedSize, plan_lib.All)
  )
  return never_none and bool(hierarchy.child_counts(level).min() > 0)


def _parents(hierarchy, level, units):
  """The units of the level above that hold `units` (int32, any shape)."""
  import jax.numpy as jnp  # Lazy import: as above.

  if hierarchy.sizes is not None:
    return units // hierarchy.sizes[level]
  offsets = jnp.asarray(hierarchy.offsets[level])
  return jnp.searchsorted(offsets, units, side="right") - 1


@plotting.styled
def draw(levels: Sequence[Frequencies]) -> bytes:
  """A PNG: for every level, units by the number of draws that held them."""
  figure = plotting.figure(2.3 * len(levels) + 0.5)
  panels = figure.subplots(len(levels), 1, squeeze=False)[:, 0]
  for k, (axes, one) in enumerate(zip(panels, levels)):
    edges, found, expected = bars(one)
    middle = edges[:-1] + (edges[1:] - edges[:-1] - 1) / 2
    axes.bar(
        middle, found, width=0.86 * (edges[1] - edges[0]), color=plotting.SKY,
        label="drawn",
    )
    half = band(one, expected)
    axes.errorbar(
        middle, expected, yerr=[np.minimum(half, expected), half],
        color=plotting.VERMILLION, marker="o", linestyle="-", markersize=4,
        linewidth=1.2, capsize=2.5, label="expected (binomial), 95 % band",
    )  # fmt: skip
    axes.set_title(
        f"{one.level}: a draw held {100 * one.observed:.4g} % ±"
        f" {100 * one.error:.1g} of the units, expected"
        f" {100 * one.expected:.4g} %",
        loc="left",
    )
    axes.set_ylabel("% of the units")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    if not k:
      axes.legend(loc="upper right")
  panels[-1].set_xlabel(f"times drawn in {levels[0].steps} draws")
  return plotting.png(figure)


def band(one: Frequencies, expected: np.ndarray) -> np.ndarray:
  """Half the widths within which bars lie with probability 95 %, at least.

  Args:
    one: of a level.
    expected: per cent of the units in each bar, of `bars`.

  Returns:
    float64[bars], per cent. Units of one primary unit are drawn together, so
    that a bar is a mean over as many shares as there are primary units; each
    lies in [0, 1], which bounds its variance. For FixedSize primary units, of
    which one takes another's place, it is a good approximation.
  """
  share = np.clip(expected / 100, 0, 1)
  return 196 * np.sqrt(share * (1 - share) / one.groups)


def bars(one: Frequencies) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """The bars of one level's picture.

  Returns:
    int64[bars + 1] edges of the counts (the last one is past the end), and the
    per cent of the units that were drawn so often, and that are expected to.
  """
  spread, every = one.inclusion, np.arange(one.steps + 1)
  # All that was drawn, and what theory expects but for 0.1 % at both ends.
  first, last = (
      int(np.searchsorted(special.bdtr(every, one.steps, eta), share))
      for eta, share in ((spread.low, 0.001), (spread.high, 0.999))
  )
  times = one.times_drawn
  low, high = min(first, times.min()), max(last, times.max())
  width = math.ceil((high - low + 1) / _BARS)
  edges = np.arange(low, high + width + 1, width)
  found = np.histogram(times, edges)[0] / times.size
  below = special.bdtr(
      np.clip(edges[:, None] - 1, 0, one.steps), one.steps, spread.values
  )
  below[edges == 0] = 0.0
  expected = np.diff(below @ spread.units, axis=0) / spread.units.sum()
  return edges, 100 * found, 100 * expected

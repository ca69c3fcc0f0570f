"""The numbers of accounting/README.md: printed errors, and their size.

"Exact" numbers are integrals over every sample of a small hierarchy
(`tests.oracles.exact`).
[P] is Tombs, Kotevska and Young, "Privacy Amplification for Episodic Training
Methods" (2022); [M] is "Meta-Learning with Differential Privacy" (DP-MAML).
"""

from collections.abc import Callable, Sequence
import functools
import math
import pathlib
from typing import Any

import numpy as np
from scipy import special

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import moments as moments_lib
from episodic_dp.accounting.guarantee import get_accountant
from episodic_dp.accounting.profiles import amplification
from experiments.evidence import pages
from tests.oracles import exact
from tests.oracles import worst_case

FILE = (
    pathlib.Path(__file__).resolve().parents[2]
    / "episodic_dp" / "accounting" / "README.md"
)

# Example 3.1 of [P] -----------------------------------------------------------


@functools.cache
def example() -> plan.Hierarchy:
  """Return the tree of Example 3.1."""
  return plan.Hierarchy.from_sizes(
      [[4, 2, 3], [4, 5]], levels=("i1", "i2", "example")
  )


def inclusion() -> pages.Table:
  """Compute eta of Example 3.1: true, as drawn, and as [P] prints it."""
  rows = []
  h = example()
  for n in ((1, 1, 1), (2, 2, 1)):
    p = plan.SamplingPlan(tuple(map(plan.FixedSize, n)))
    drawn = exact.samples(exact.tree(h), p.stages)
    frequencies = [0.0] * h.num_leaves
    for weight, sample in drawn:
      for unit in range(h.num_leaves):
        if exact.holds(sample, 2, unit):
          frequencies[unit] += weight
    rows.append((
        str(n),
        plan.inclusion_rate(h, p, "example"),
        max(frequencies),
        float(math.prod(n) / np.prod(h.size_paths(2)[:, 1:], axis=1).min()),
        min(frequencies),
    ))
  return pages.Table(
      ("n", "η = largest inclusion probability", "the same, enumerated",
       "denominators as printed (no number of primary units)",
       "\"min\" as printed"),
      rows,
  )


def theorem3_as_printed(
    eta: float, epsilon: float, noise_multiplier: float
) -> float:
  """Compute theorem 3 of "Privacy Amplification for Episodic Training Methods".

  As printed: delta' at epsilon is eta * delta(epsilon_0), with
  epsilon = ln(1 + eta (e^epsilon_0 - 1)) and delta the add-or-remove profile of
  the Gaussian mechanism at sensitivity C. **It does not hold** for fixed-size
  sampling: a removed unit is replaced, which moves the sum by up to 2C, and the
  rest of the sample is not independent of the unit's parent. On the paper's
  Example 3.1 the true value exceeds this one twenty times.

  Args:
    eta: the inclusion probability, in (0, 1].
    epsilon: at least 0.
    noise_multiplier: z > 0.

  Returns:
    The printed delta'. Use `accounting.guarantee` for a true one.
  """
  log_alpha = math.log1p(math.expm1(epsilon) / eta)
  divergence = amplification.hockey_stick(
      np.asarray(log_alpha), 1 / noise_multiplier
  )
  return float(eta * divergence)


def theorem3(epsilons: Sequence[float] = (0.1, 0.5, 1.0)) -> pages.Table:
  """Compare bounds of one step on Example 3.1 with the truth."""
  h = example()
  p = plan.SamplingPlan((plan.FixedSize(1),) * 3)
  unit, eta, z = 4, 1 / 12, 1.0  # The first of the two examples of U_12.
  drawn = exact.pair(h, p, 2, unit)
  kind = amplification.Amplification((1 / 2, 1 / 3), 1 / 2, (2.0, 2.0), 2.0)
  one_stage = amplification.Amplification((), eta, (), 2.0)
  rows = []
  for epsilon in epsilons:
    truth = []
    for gradient in worst_case.gradients(h, 2, unit):
      truth.append(exact.divergences(drawn, 2, gradient, epsilon, z))
    at = np.asarray([epsilon])
    for direction in amplification.DIRECTIONS:
      rows.append((
          epsilon,
          direction,
          max(t[direction] for t in truth),
          float(kind.divergence(at, direction)[0]),
          theorem3_as_printed(eta, epsilon, z),
          float(one_stage.divergence(at, direction)[0]),
      ))
  return pages.Table(
      ("ε", "direction", "exact δ, worst data", "bound (tight)",
       "Theorem 3 as printed", "one stage of rate η, base profile at 2C"),
      rows,
  )


# Several steps ----------------------------------------------------------------


def _directions(
    rate: float, own: float, distances: Any, delta: float
) -> str:
  """Return epsilon after 250 steps, in both directions."""
  found = []
  for direction in amplification.DIRECTIONS:
    found.append(pages.shown(accounting.epsilon(
        rate, own, distances, steps=250, delta=delta, direction=direction
    )))
  return " / ".join(found)


def composition() -> pages.Table:
  """Compute epsilon of both directions, right and as one stage."""
  rows: list[tuple[pages.Cell, ...]] = []
  for q, p, z, delta in (
      (0.004, 0.2, 1.0, 1e-6), (0.004, 1.0, 1.0, 1e-6), (0.1, 0.1, 4.0, 1e-5)
  ):
    one_stage = None
    if p < 1:
      one_stage = _directions(1.0, q * p, 2 / z, delta)
    rows.append((
        q, p, z, f"{delta:g}",
        _directions(q, p, 2 / z, delta),
        _directions(q, p, (1 / z, 2 / z), delta),
        one_stage,
        _directions(1.0, q * p, 1 / z, delta),
    ))
  return pages.Table(
      ("q", "p", "z", "δ", "tasks by FixedSize", "tasks by Poisson",
       "one stage of rate qp at 2C (not valid)", "as printed (not valid)"),
      rows,
  )


# The epsilons that [M] prints -------------------------------------------------

_DELTA = 1e-6
_LOT = 1600  # Tasks of a step, unless a table states another number.
_MOMENTS = moments_lib.Moments(max_order=64)


def _release(
    participants: int, stage: plan.Stage, z: float = 1.0
) -> plan.Release:
  """Describe tasks of five classes of two images, each a clip unit."""
  return plan.Release(
      plan.Hierarchy.regular(
          (participants, 5, 2), levels=("participant", "class", "image")
      ),
      plan.SamplingPlan((stage, plan.FixedSize(5), plan.FixedSize(2))),
      plan.Mechanism(clip_unit="participant", noise_multiplier=z),
  )


def epsilon(
    participants: int, stage: plan.Stage, steps: int
) -> accounting.Guarantee:
  """Return the guarantee of a participant: z = 1, at the delta of [M]."""
  return accounting.guarantee(
      _release(participants, stage),
      steps=steps,
      delta=_DELTA,
      level="participant",
  )


def samplers() -> pages.Table:
  """Compare samplers for a participant of [M]'s setting."""
  stages: dict[str, plan.Stage] = {
      "Poisson(0.004)": plan.Poisson(0.004),
      "FixedSize(1600)": plan.FixedSize(_LOT),
      "RandomAllocation(250), one pass": plan.RandomAllocation(250),
  }
  rows = []
  for name, stage in stages.items():
    found = epsilon(400_000, stage, 250)
    rows.append((name, found.epsilon, found.direction))
  return pages.Table(("tasks sampled by", "ε", "larger direction"), rows)


def moments() -> pages.Table:
  """Compare accountants with section 6.3.3 and Figure 7."""
  found = functools.partial(
      accounting.epsilon, 1.0, 0.004, steps=250, delta=_DELTA
  )
  rows = []
  for z, printed in ((1.0, 1.5), (2.0, 0.34), (3.0, 0.23)):
    rows.append((
        z,
        printed,
        found(1 / z, accountant=moments_lib.Moments(max_order=256)),
        found(1 / z, accountant=_MOMENTS),
        found(1 / z, accountant="rdp"),
        found(1 / z, accountant="pld"),
    ))
  return pages.Table(
      ("z", "[M] prints", "moments, λ ≤ 256", "moments, λ ≤ 64", "rdp", "pld"),
      rows,
  )


def mini_imagenet() -> pages.Table:
  """Compute Table 3: 100 000 tasks of mini-ImageNet, 1600 a step, z = 1."""
  tasks = 100_000
  rate, one_pass = _LOT / tasks, tasks // _LOT
  rows: list[tuple[pages.Cell, ...]] = []
  for steps in (5, one_pass):
    allocated = None
    if steps == one_pass:
      stage = plan.RandomAllocation(steps)
      allocated = epsilon(tasks, stage, steps).epsilon
    rows.append((
        steps,
        1.5,
        accounting.epsilon(
            1.0, rate, 1.0, steps=steps, delta=_DELTA, accountant=_MOMENTS
        ),
        epsilon(tasks, plan.Poisson(rate), steps).epsilon,
        epsilon(tasks, plan.FixedSize(_LOT), steps).epsilon,
        allocated,
    ))
  return pages.Table(
      ("steps", "[M] prints", "moments", "Poisson", "FixedSize",
       "RandomAllocation, one pass"),
      rows,
  )


def sample_level() -> pages.Table:
  """Compute section 6.4: 4000 tasks, 10 a step, z = 1, one pass."""
  found = functools.partial(
      accounting.epsilon, 1.0, 10 / 4000, 1.0, steps=400, delta=1e-5
  )
  return pages.Table(
      (
          "a task, sampled by Poisson(10 / 4000)", "[M] prints, for a sample",
          "ε",
      ),
      [
          ("moments", 1.18, found(accountant=_MOMENTS)),
          ("pld", 1.18, found(accountant="pld")),
      ],
  )


def _most_steps(tasks: int, lot: int, budget: float, accountant: Any) -> int:
  """Return the steps within a budget, `lot` tasks a step expected."""
  return accounting.max_steps(
      _release(tasks, plan.Poisson(lot / tasks)),
      target_epsilon=budget,
      delta=_DELTA,
      level="participant",
      accountant=accountant,
  )


def lot_size() -> pages.Table:
  """Compute Figure 10, z = 1: the steps that a budget allows."""
  tasks, rows = 400_000, []
  for lot in (_LOT, 3200, 4800, 5600):
    rows.append((
        lot,
        tasks // lot,
        _most_steps(tasks, lot, 1.5, _MOMENTS),
        _most_steps(tasks, lot, 1.5, "pld"),
        _most_steps(tasks, lot, 2.0, _MOMENTS),
        _most_steps(tasks, lot, 2.0, "pld"),
    ))
  return pages.Table(
      ("tasks a step", "steps of one pass", "within ε = 1.5, moments",
       "within 1.5, pld", "within ε = 2, moments", "within 2, pld"),
      rows,
  )


FIGURE12 = {380_000: "2.0e-6", 560_000: "4.2e-7"}  # Tasks -> printed delta.


def deltas_after_a_pass(tasks: int) -> dict[str, float]:
  """Return delta at ε = 1.5 after one pass, 1600 tasks a step, z = 1.

  Returns:
    "moments", by the accountant of [M], and "pld", both for tasks sampled by
    Poisson; "subset", for a random subset of fixed size a step.
  """

  def delta(accountant: Any, stage: plan.Stage) -> float:
    units = accounting.unit_profiles(_release(tasks, stage), "participant")
    run = (base.Phase(units, tasks // _LOT),)
    return max(
        accountant.answer(run, direction, base.Epsilon(1.5))
        for direction in amplification.DIRECTIONS
    )

  poisson, pld = plan.Poisson(_LOT / tasks), get_accountant("pld")
  return {
      "moments": delta(_MOMENTS, poisson),
      "pld": delta(pld, poisson),
      "subset": delta(pld, plan.FixedSize(_LOT)),
  }


def training_tasks() -> pages.Table:
  """Compute Figure 12: delta at ε = 1.5 after one pass over ever more tasks."""
  rows = []
  for tasks, printed in FIGURE12.items():
    found = deltas_after_a_pass(tasks)
    rows.append((
        tasks, tasks // _LOT, printed, found["moments"], found["pld"]
    ))
  return pages.Table(
      ("training tasks", "steps", "[M] prints", "moments", "pld"), rows
  )


# Noise that does not protect -------------------------------------------------


def percentile_clipping() -> pages.Table:
  """Compute C from raw norms: one more small task reduces the noise.

  20 scalar tasks a step, all of them used, 18 with gradient 0.001 and two with
  gradient 1. The 90th percentile of their norms clips the next step, which adds
  noise of z times that. Only its release is compared, without sampling.
  """
  small = 0.001
  without = [small] * 18 + [1.0] * 2
  with_t = [*without, small]
  clip, clip_t = np.percentile(without, 90), np.percentile(with_t, 90)
  total = np.minimum(without, clip).sum()
  total_t = np.minimum(with_t, clip_t).sum()
  rows = []
  for z in (1.0, 10.0, 100.0):
    release, release_t = (total, z * clip), (total_t, z * clip_t)
    # The claim: two steps of the Gaussian mechanism at distance C.
    claimed = math.sqrt(2) / z
    rows.append((
        z, f"{clip:.4g}", f"{clip_t:.4g}",
        _normals(release_t, release, 1.0), _normals(release_t, release, 3.0),
        _gaussian(claimed, 1.0), _gaussian(claimed, 3.0),
    ))
  return pages.Table(
      ("z", "C without t", "C with t", "exact δ(1)", "exact δ(3)",
       "claimed δ(1)", "claimed δ(3)"),
      rows,
  )


def second_order() -> pages.Table:
  """Show that second-order outer gradients read the support set without noise.

  One parameter at φ = 0. The support loss is s θ² / 2 with s = 2 / (inner rate)
  if t is in the support set, and 0 otherwise. Its gradient at 0 is 0, so the
  noised inner step does not depend on t at all. The outer gradient of every
  query example is (1 - rate · s) times a constant above C: its sign depends on
  t. 15 query examples are clipped to C each, with noise z C on their sum.
  """
  queries, rows = 15, []
  for z in (1.0, 4.0, 16.0):
    distance, claimed = 2 * queries / z, 1 / z
    rows.append((
        z, _gaussian(distance, 1.0), _gaussian(distance, 3.0),
        _gaussian(claimed, 1.0), _gaussian(claimed, 3.0),
    ))
  return pages.Table(
      ("z, inner and outer", "exact δ(1)", "exact δ(3)",
       "claimed δ(1), one noised inner step", "claimed δ(3)"),
      rows,
  )


def _gaussian(distance: float, epsilon: float) -> float:
  """Return H_alpha(N(distance) || N(0)) of standard deviation 1."""
  value = amplification.hockey_stick(np.asarray([epsilon]), distance)[0]
  return max(float(value), 5e-324)  # Positive, however small.


def _normals(
    p: tuple[float, float], q: tuple[float, float], epsilon: float
) -> float:
  """Return H_alpha of normals (mean, deviation), p the narrower."""
  (a, s), (b, r) = p, q
  # ln p - ln q - epsilon is a parabola that opens downwards.
  roots = np.sort(np.roots([
      0.5 / r**2 - 0.5 / s**2,
      a / s**2 - b / r**2,
      0.5 * (b / r) ** 2 - 0.5 * (a / s) ** 2 + math.log(r / s) - epsilon,
  ]).real)
  inside = [np.diff(special.ndtr((roots - m) / d))[0] for m, d in (p, q)]
  return float(inside[0] - math.exp(epsilon) * inside[1])


# The page ---------------------------------------------------------------------


TABLES: dict[str, Callable[[], pages.Table]] = {
    table.__name__: table
    for table in (
        inclusion, theorem3, composition, samplers, moments, mini_imagenet,
        sample_level, lot_size, training_tasks, percentile_clipping,
        second_order,
    )
}


def document() -> str:
  """Return the README with its tables as the code computes them."""
  found = {name: table() for name, table in TABLES.items()}
  return pages.filled(FILE.read_text(encoding="utf-8"), "errata", found)

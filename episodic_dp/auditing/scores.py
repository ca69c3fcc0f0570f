"""Score how likely a run had the record, for an attacker who knows the rest.

Formal statement
----------------
A score is a function of the releases of a run (`attack.Releases`) and of
constants that differential privacy lets an attacker know: both data sets, the
plan, the mechanism, the public sizes of the side that is scored. It is
therefore post-processing of the released vectors. A score need not be exact: a
wrong law of the outputs makes a weaker attack, never a bound that is too large.

For the canaries of `canaries.worst_case` the sum of a step is one of a few
numbers m_o on a line, each with a known probability, plus noise: P = sum_o w_o
N(m_o, 1) with the record and Q = sum_o v_o N(m_o, 1) without it, in standard
deviations of the noise. Steps are drawn independently, so the best test of a
run (Neyman and Pearson) is of the sum over the steps of

    log sum_o w_o exp(m_o x - m_o^2 / 2) - log sum_o v_o exp(m_o x - m_o^2 / 2),

for a record that is alone, drawn at rate q and at distance d: log(1 - q +
q exp(d x - d^2 / 2)). In a pass of `RandomAllocation` one of the steps holds
the record: the mean over the steps takes the place of the sum, under the
logarithm.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special
from scipy import stats

from episodic_dp import errors
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import distances
from episodic_dp.plan import sampler_error
from episodic_dp.plan import stages as stages_lib
from episodic_dp.plan import validation


class Law(NamedTuple):
  """The distribution of the sum of a step, in clip norms, before noise.

  Attributes:
    present: float64[outcomes], probabilities with the record.
    absent: float64[outcomes], without it.
    sums: float64[outcomes], the sum of clipped gradients along the line.
    units: float64[outcomes], number of clip units of norm C in the sum.
  """

  present: np.ndarray
  absent: np.ndarray
  sums: np.ndarray
  units: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
  """The log-likelihood ratio of a run's releases.

  Attributes:
    law: of one step, or of the step of a pass that draws the record's primary
      unit.
    mechanism: of the releases.
    pass_steps: the steps of one pass, or 0.
  """

  law: Law
  mechanism: plan_lib.Mechanism
  pass_steps: int = 0

  def __call__(self, released: Any, count: float) -> np.ndarray:
    """Score releases; column t is the score of the first t + 1 steps.

    Args:
      released: `attack.Releases` of one coordinate.
      count: the public number that the side's sums are divided by
        (`clip_units`).

    Returns:
      float64[runs, steps].
    """
    return self._of(on_line(released, self.mechanism, count)[..., 0])

  def simulated(
      self, rng: np.random.Generator, runs: int, steps: int, *, present: bool
  ) -> np.ndarray:
    """Score runs that follow the law, to choose a threshold before real runs.

    Returns:
      float64[runs, steps], cumulative.
    """
    chances = self.law.present if present else self.law.absent
    places = positions(self.law, self.mechanism)
    shape = (runs, steps)
    if not self.pass_steps:
      sums = places[rng.choice(places.size, shape, p=chances)]
    else:
      passes = (runs, -(-steps // self.pass_steps))
      sums = np.zeros((*passes, self.pass_steps))
      when = rng.integers(self.pass_steps, size=(*passes, 1))
      drawn = places[rng.choice(places.size, (*passes, 1), p=chances)]
      np.put_along_axis(sums, when, drawn, axis=2)
      sums = sums.reshape(runs, -1)[:, :steps]
    return self._of(sums + rng.standard_normal(shape))

  def _of(self, x: np.ndarray) -> np.ndarray:
    """Score float64[runs, steps] in units of noise, cumulatively."""
    places = positions(self.law, self.mechanism)
    exponents = x[..., None] * places - places**2 / 2
    if not self.pass_steps:
      return np.cumsum(self._ratio(exponents, axis=-1), axis=1)
    # At whole passes; between them the score stays.
    result = np.zeros(x.shape)
    for start in range(0, x.shape[1] - self.pass_steps + 1, self.pass_steps):
      end = start + self.pass_steps
      result[:, end - 1 :] += self._ratio(
          exponents[:, start:end], axis=(1, 2)
      )[:, None]
    return result

  def _ratio(
      self, exponents: np.ndarray, axis: int | tuple[int, int]
  ) -> np.ndarray:
    """Return the log of the ratio of the two mixtures."""
    with_record, without = (
        special.logsumexp(exponents, axis=axis, b=weights)
        for weights in (self.law.present, self.law.absent)
    )
    return with_record - without


def clip_units(release: plan_lib.Release) -> float:
  """Return the public number by which a step divides its sum."""
  plan = release.plan
  if plan.episode is None:
    return validation.examples_per_step(release.hierarchy, plan)
  tasks = plan_lib.tasks_per_step(release.hierarchy, plan)
  if release.mechanism.noisy_inner_steps:
    return tasks * plan.episode.way * plan.episode.query
  return tasks


def on_line(
    released: Any, mechanism: plan_lib.Mechanism, count: float
) -> np.ndarray:
  """Return sums in units of their noise, float64[runs, steps, coordinates].

  With clipping="private_quantile" the noised count is read out of two clip
  norms, and added along the direction (gradient, count) in which a clip unit of
  norm C moves the pair: that is the projection on a unit vector, of noise 1.
  """
  z, noise = mechanism.noise_multiplier, mechanism.gradient_noise_multiplier
  means = np.asarray(released.means, np.float64)
  if mechanism.clipping != "private_quantile":
    return means * (count / (noise * mechanism.clip_norm))
  bounds = np.asarray(released.clip_norms, np.float64)
  gradient = means * (count / noise) / bounds[:, :-1]
  rate, sigma = mechanism.clip_rate, mechanism.count_noise
  assert rate is not None and sigma is not None  # Checked by the mechanism.
  assert mechanism.clip_quantile is not None
  moved = np.log(bounds[:, 1:] / bounds[:, :-1])
  share = mechanism.clip_quantile - moved / rate
  counted = (share - 0.5) * count / sigma
  return z * (gradient / noise - counted / (2 * sigma))


def positions(law: Law, mechanism: plan_lib.Mechanism) -> np.ndarray:
  """Return `on_line` of the outcomes without noise, float64[outcomes]."""
  z, noise = mechanism.noise_multiplier, mechanism.gradient_noise_multiplier
  if mechanism.clipping != "private_quantile":
    return law.sums / noise
  sigma = mechanism.count_noise
  assert sigma is not None  # Checked by the mechanism.
  return z * (law.sums / noise**2 + law.units / (4 * sigma**2))



# Laws of the worst case -----------------------------------------------------


class WorstCaseSigns(NamedTuple):
  """The signs of the gradients of the worst case.

  Attributes:
    clip: the level (from 0) whose units lie in one clip unit or are it.
    others: for each stage above the record's own, the sign of the units drawn
      where the record's path is left at that stage: 0 where nothing takes the
      place of a unit that is not drawn.
    siblings: the sign of the other units in the record's parent.
  """

  clip: int
  others: tuple[int, ...]
  siblings: int


def worst_case_signs(
    release: plan_lib.Release, k: int, direction: str
) -> WorstCaseSigns:
  """Choose the signs at which the accountant's bound is attained, if known.

  The record points to +1. To remove it all else points to -1; to add it, the
  units drawn instead of its parent point to +1 too, since then all negative
  terms of the divergence meet. Inside a clip unit, and where stages are of
  fixed size, another unit takes the place of one that is not drawn.

  Args:
    release: how both data sets are sampled.
    k: the level of the record (position from 0).
    direction: "remove" or "add".

  Raises:
    PlanError: another direction.
  """
  if direction not in ("remove", "add"):
    raise errors.PlanError(
        f"direction {direction!r} must be 'remove' or 'add'"
    )
  clip, stages = release.clip_level, release.plan.stages
  far = -1 if direction == "remove" else 1

  def replaced(j: int) -> bool:
    return j > clip or isinstance(stages[j], plan_lib.FixedSize)

  def sign(j: int) -> int:
    # Without replacement the sum is 0 where nothing is drawn; units next to
    # the record would lead it back.
    return far if j > clip or (replaced(0) and replaced(j)) else 0

  return WorstCaseSigns(
      clip,
      tuple(sign(j) for j in range(k)),
      -1 if replaced(k) else 0,
  )


def worst_case_score(
    release: plan_lib.Release, k: int, direction: str
) -> Score:
  """Return the score for the record of `canaries.worst_case`."""
  hierarchy, plan = release.hierarchy, release.plan
  mechanism = release.mechanism
  signs = worst_case_signs(release, k, direction)
  (rates,) = stages_lib.rate_paths(hierarchy, plan, k).tolist()
  episode, pass_steps = plan.episode, _pass_steps(plan)
  if pass_steps:
    rates[0] = 1.0  # Given that the step draws the primary unit.
  if mechanism.noisy_inner_steps and k == hierarchy.depth - 1:
    assert episode is not None  # Noisy inner steps are inside tasks.
    # As a support example the record does nothing that is looked at.
    rates[k] *= episode.query / (episode.shot + episode.query)
  if episode is not None and episode.form == "independent":
    law = _independent(rates, signs, episode.tasks or 1)
  elif episode is not None and episode.form == "disjoint":
    law = _disjoint(release, rates, signs, k)
  else:
    law = _tree(release, rates, signs, k)
  return Score(law=law, mechanism=mechanism, pass_steps=pass_steps)


def _pass_steps(plan: plan_lib.SamplingPlan) -> int:
  """Return the steps of one pass over the primary units, 0 for none."""
  first = plan.stages[0]
  return first.steps if isinstance(first, plan_lib.RandomAllocation) else 0


def _tree(
    release: plan_lib.Release,
    rates: list[float],
    signs: WorstCaseSigns,
    k: int,
) -> Law:
  """Return the law of clip units that are drawn units of the hierarchy."""
  sizes, plan = release.hierarchy.sizes, release.plan
  assert sizes is not None  # Worst cases are of regular hierarchies.
  clip = signs.clip
  drawn = []
  for j in range(clip + 1):
    stage = plan.stages[j]
    if isinstance(stage, plan_lib.FixedSize):
      drawn.append(min(stage.n, sizes[j]))
    else:
      drawn.append(1)
  if release.mechanism.noisy_inner_steps:
    assert plan.episode is not None  # Noisy inner steps are inside tasks.
    drawn[clip] = plan.episode.query  # The clip units of a class.
  below = [math.prod(drawn[j + 1 :]) for j in range(clip + 1)]
  # Units drawn next to the path, stage by stage, in sum and number.
  adjacent = [
      (drawn[j] - 1) * below[j] if j <= clip else 0
      for j in range(k + 1)
  ]
  sums, units = [0.0], [0.0]
  for j in range(k):
    sums.append(sums[-1] + adjacent[j] * signs.others[j])
    units.append(units[-1] + adjacent[j] * abs(signs.others[j]))
  outcomes = []
  reached = 1.0
  for j in range(k):
    # The path is left at stage j: one more unit of that stage.
    size = (adjacent[j] + below[j]) if j <= clip else 1
    sign = signs.others[j]
    outcomes.append((
        reached * (1 - rates[j]), reached * (1 - rates[j]),
        sums[j] + size * sign, units[j] + size * abs(sign),
    ))
    reached *= rates[j]
  own = below[k] if k <= clip else 1
  s = signs.siblings
  other = (adjacent[k] + own) if k <= clip else 1
  outcomes.append((
      reached * (1 - rates[k]), reached,
      sums[k] + other * s, units[k] + other * abs(s),
  ))
  outcomes.append((
      reached * rates[k], 0.0,
      sums[k] + (other - own) * s + own,
      units[k] + (other - own) * abs(s) + own,
  ))
  return _law(outcomes)


def _disjoint(
    release: plan_lib.Release,
    rates: list[float],
    signs: WorstCaseSigns,
    k: int,
) -> Law:
  """Return the law of tasks that are groups of drawn classes."""
  plan = release.plan
  assert plan.episode is not None  # Classes are drawn for tasks.
  drawn = sampler_error.capacities(release.hierarchy, plan)
  clip, way = signs.clip, plan.episode.way
  tasks = math.prod(drawn[: clip + 1]) // way

  def touched(level: int) -> int:
    if level >= clip:
      return 1
    block = math.prod(drawn[level + 1 : clip + 1])
    return distances.tasks_touched(block, way)

  far = signs.others[0] if k else -1
  parents = touched(k - 1) if k else tasks
  reached = math.prod(rates[:k])
  without = far * tasks + parents * (-1 - far)
  return _law([
      (1 - reached, 1 - reached, far * tasks, tasks),
      (reached * (1 - rates[k]), reached, without, tasks),
      (reached * rates[k], 0.0, without + 2 * touched(k), tasks),
  ])


def _independent(
    rates: list[float], signs: WorstCaseSigns, tasks: int
) -> Law:
  """Return the law of tasks that draw the record's class independently."""
  reached, own = math.prod(rates[:-1]), rates[-1]
  counts = np.arange(tasks + 1)
  if not signs.others or signs.others[0] < 0:
    present, absent = reached * own, 0.0
    sums = 2.0 * counts - tasks
  else:
    # The record's class without the record turns a task around.
    present, absent = reached * (1 - own), reached
    sums = tasks - 2.0 * counts
  return Law(
      stats.binom.pmf(counts, tasks, present),
      stats.binom.pmf(counts, tasks, absent),
      sums,
      np.full(tasks + 1, float(tasks)),
  )


def _law(outcomes: list[tuple[float, float, float, float]]) -> Law:
  """Make a law of (present, absent, sum, units); drop impossible outcomes."""
  kept = [row for row in outcomes if row[0] > 0 or row[1] > 0]
  return Law(*np.asarray(kept, np.float64).T)

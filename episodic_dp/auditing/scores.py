"""How likely a run had the record, for an attacker who knows all the rest.

Formal statement
----------------
A score is a function of what a run released (`runs.Releases`) and of constants
that differential privacy lets an attacker know: both data sets, the plan, the
mechanism, the public sizes of the side that is scored. So it is post-processing
of the released vectors, and what is private of these is private of it. A score
need not be exact: a wrong law of the outputs makes a weaker attack, never a
bound that is too large.

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

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import sensitivity


class WorstCaseSigns(NamedTuple):
  """Which way the gradients of the worst case point.

  Attributes:
    clip: the level (from 0) whose units lie in one clip unit or are it.
    others: for each stage above the record's own, the sign of what is drawn
      where the record's path is left at that stage: 0 where nothing takes the
      place of a unit that is not drawn.
    siblings: the sign of the other units in the record's parent.
  """

  clip: int
  others: tuple[int, ...]
  siblings: int


class Law(NamedTuple):
  """Where the sum of a step lies, in clip norms, before noise.

  Attributes:
    present: float64[outcomes], probabilities with the record.
    absent: float64[outcomes], without it.
    sums: float64[outcomes], the sum of clipped gradients along the line.
    units: float64[outcomes], how many clip units of norm C are in it.
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
    mechanism: what is released.
    pass_steps: the steps of one pass, or 0.
    direction: float64[coordinates] of length 1, the line in the space of sums;
      None where coordinates are lines themselves.
    offset: float64[coordinates], a sum that is taken off first, or None.
  """

  law: Law
  mechanism: plan_lib.Mechanism
  pass_steps: int = 0
  direction: np.ndarray | None = None
  offset: np.ndarray | None = None

  def __call__(self, released: Any, count: float) -> np.ndarray:
    """float64[runs, steps], cumulative: column t is the score of t + 1 steps.

    Args:
      released: `runs.Releases` of one coordinate.
      count: the public number that the side's sums are divided by
        (`clip_units`).
    """
    return self.each(released, count)[..., 0]

  def each(self, released: Any, count: float) -> np.ndarray:
    """float64[runs, steps, lines], as above, for every line."""
    if self.direction is not None:
      means = np.asarray(released.means, np.float64)
      if self.offset is not None:
        means = means - self.offset / count
      released = released._replace(means=(means @ self.direction)[..., None])
    return self._of(on_line(released, self.mechanism, count))

  def simulated(
      self, rng: np.random.Generator, runs: int, steps: int, *, present: bool
  ) -> np.ndarray:
    """float64[runs, steps], scores of runs that follow the law, cumulative.

    What an attacker expects before seeing any run; for choosing a threshold.
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
    return self._of((sums + rng.standard_normal(shape))[..., None])[..., 0]

  def _of(self, x: np.ndarray) -> np.ndarray:
    """Cumulative scores of float64[runs, steps, lines] in units of noise."""
    places = positions(self.law, self.mechanism)
    exponents = x[..., None] * places - places**2 / 2
    if self.pass_steps:
      return _of_passes(exponents, self.law, self.pass_steps)
    with_record = special.logsumexp(exponents, axis=-1, b=self.law.present)
    without = special.logsumexp(exponents, axis=-1, b=self.law.absent)
    return np.cumsum(with_record - without, axis=1)


def clip_units(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
) -> float:
  """What `private.make_meta_step` divides its sum by, a public number."""
  if plan.episode is None:
    return plan_lib.examples_per_step(hierarchy, plan)
  tasks = plan_lib.tasks_per_step(hierarchy, plan)
  if mechanism.noisy_inner_steps:
    return tasks * plan.episode.way * plan.episode.query
  return tasks


def on_line(
    released: Any, mechanism: plan_lib.Mechanism, count: float
) -> np.ndarray:
  """float64[runs, steps, coordinates], the sums in units of their noise.

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
  """float64[outcomes], where `on_line` would lie without noise."""
  z, noise = mechanism.noise_multiplier, mechanism.gradient_noise_multiplier
  if mechanism.clipping != "private_quantile":
    return law.sums / noise
  sigma = mechanism.count_noise
  assert sigma is not None  # Checked by the mechanism.
  return z * (law.sums / noise**2 + law.units / (4 * sigma**2))


def worst_case_signs(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    k: int,
    direction: str,
) -> WorstCaseSigns:
  """The signs at which the accountant's bound is attained, as far as known.

  The record points to +1. To remove it all else points to -1; to add it, what
  is drawn instead of its parent points to +1 too, since then all negative terms
  of the divergence meet. Inside a clip unit, and where stages are of fixed
  size, something takes the place of what is not drawn; else nothing does.
  """
  if direction not in ("remove", "add"):
    raise plan_lib.PlanError(
        f"direction {direction!r} must be 'remove' or 'add'"
    )
  clip = sensitivity.clip_level(hierarchy, mechanism)
  far = -1 if direction == "remove" else 1

  def replaced(j: int) -> bool:
    return j > clip or isinstance(plan.stages[j], plan_lib.FixedSize)

  def sign(j: int) -> int:
    # Where nothing is drawn most of the time the sum is 0 then, from which
    # units beside the record would lead it back.
    return far if j > clip or (replaced(0) and replaced(j)) else 0

  return WorstCaseSigns(
      clip,
      tuple(sign(j) for j in range(k)),
      -1 if replaced(k) else 0,
  )


def of_line(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    k: int,
    direction: str,
) -> Score:
  """The score for the record of `canaries.worst_case`."""
  signs = worst_case_signs(hierarchy, plan, mechanism, k, direction)
  (rates,) = plan_lib.rate_paths(hierarchy, plan, k).tolist()
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
    law = _disjoint(hierarchy, plan, rates, signs, k)
  else:
    law = _tree(hierarchy, plan, mechanism, rates, signs, k)
  return Score(law=law, mechanism=mechanism, pass_steps=pass_steps)


def of_moved(
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    *,
    rate: float,
    distance: float,
    direction: np.ndarray,
    offset: np.ndarray,
) -> Score:
  """The score for a record that, where drawn, moves the sum along a line.

  Args:
    plan: how steps are sampled.
    mechanism: what is released.
    rate: the probability that a step draws the record.
    distance: how far it moves the sum then, in clip norms.
    direction: of length 1.
    offset: the sum without the record, on average.
  """
  pass_steps = _pass_steps(plan)
  rate = 1.0 if pass_steps else rate
  return Score(
      law=_law([(1 - rate, 1.0, 0.0, 0.0), (rate, 0.0, distance, 0.0)]),
      mechanism=mechanism,
      pass_steps=pass_steps,
      direction=direction,
      offset=offset,
  )


def of_alone(
    plan: plan_lib.SamplingPlan, mechanism: plan_lib.Mechanism
) -> Score:
  """The score of each of many primary units that have a coordinate each."""
  pass_steps = _pass_steps(plan)
  rate = 1.0 if pass_steps else float(plan.stages[0].rate(np.asarray(1)))
  together = 1
  if mechanism.noisy_inner_steps:
    assert plan.episode is not None  # As above.
    together = plan.episode.way * plan.episode.query
  law = _law([(1 - rate, 1.0, 0.0, 0.0), (rate, 0.0, together, together)])
  return Score(law=law, mechanism=mechanism, pass_steps=pass_steps)


def _pass_steps(plan: plan_lib.SamplingPlan) -> int:
  """The steps of one pass over the primary units, 0 where there are none."""
  first = plan.stages[0]
  return first.steps if isinstance(first, plan_lib.RandomAllocation) else 0


def _of_passes(
    exponents: np.ndarray, law: Law, pass_steps: int
) -> np.ndarray:
  """Cumulative scores at whole passes; between them those of the last one."""
  runs, steps, lines, _ = exponents.shape
  result = np.zeros((runs, steps, lines))
  total = np.zeros((runs, lines))
  for start in range(0, steps - pass_steps + 1, pass_steps):
    part = exponents[:, start : start + pass_steps]
    total = total + (
        special.logsumexp(part, axis=(1, 3), b=law.present)
        - special.logsumexp(part, axis=(1, 3), b=law.absent)
    )
    result[:, start + pass_steps - 1 :] = total[:, None]
  return result


def _tree(hierarchy, plan, mechanism, rates, signs, k) -> Law:
  """Clip units that are drawn units of the hierarchy."""
  clip = signs.clip
  drawn = []
  for j in range(clip + 1):
    stage, size = plan.stages[j], hierarchy.sizes[j]
    fixed = isinstance(stage, plan_lib.FixedSize)
    drawn.append(min(stage.n, size) if fixed else 1)
  if mechanism.noisy_inner_steps:
    drawn[clip] = plan.episode.query  # The clip units of a class.
  below = [math.prod(drawn[j + 1 :]) for j in range(clip + 1)]
  # What is drawn beside the path, stage by stage, in sum and number.
  beside = [
      (drawn[j] - 1) * below[j] if j <= clip else 0
      for j in range(k + 1)
  ]
  sums, units = [0.0], [0.0]
  for j in range(k):
    sums.append(sums[-1] + beside[j] * signs.others[j])
    units.append(units[-1] + beside[j] * abs(signs.others[j]))
  outcomes = []
  reached = 1.0
  for j in range(k):
    # The path is left at stage j: one more unit of that stage.
    size = (beside[j] + below[j]) if j <= clip else 1
    sign = signs.others[j]
    outcomes.append((
        reached * (1 - rates[j]), reached * (1 - rates[j]),
        sums[j] + size * sign, units[j] + size * abs(sign),
    ))
    reached *= rates[j]
  own = below[k] if k <= clip else 1
  s = signs.siblings
  other = (beside[k] + own) if k <= clip else 1
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


def _disjoint(hierarchy, plan, rates, signs, k) -> Law:
  """Tasks that are groups of drawn classes; all of them are at full length."""
  drawn = plan_lib.capacities(hierarchy, plan)
  clip, way = signs.clip, plan.episode.way
  tasks = math.prod(drawn[: clip + 1]) // way

  def touched(level: int) -> int:
    if level >= clip:
      return 1
    block = math.prod(drawn[level + 1 : clip + 1])
    return sensitivity.tasks_touched(block, way)

  far = signs.others[0] if k else -1
  parents = touched(k - 1) if k else tasks
  reached = math.prod(rates[:k])
  without = far * tasks + parents * (-1 - far)
  return _law([
      (1 - reached, 1 - reached, far * tasks, tasks),
      (reached * (1 - rates[k]), reached, without, tasks),
      (reached * rates[k], 0.0, without + 2 * touched(k), tasks),
  ])


def _independent(rates, signs, tasks: int) -> Law:
  """Tasks that draw the record's class independently of each other."""
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
  """From rows (present, absent, sum, units) of outcomes that can happen."""
  kept = [row for row in outcomes if row[0] > 0 or row[1] > 0]
  return Law(*np.asarray(kept, np.float64).T)

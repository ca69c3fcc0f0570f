"""How the sum of a step is distributed, with a canary and without it.

For each kind of canary the probability of every sum, from the rates at which
stages draw units; see `scores` for what an attacker makes of it.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import distances
from episodic_dp.auditing import scores


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


def worst_case_signs(
    release: plan_lib.Release, k: int, direction: str
) -> WorstCaseSigns:
  """The signs at which the accountant's bound is attained, as far as known.

  The record points to +1. To remove it all else points to -1; to add it, what
  is drawn instead of its parent points to +1 too, since then all negative terms
  of the divergence meet. Inside a clip unit, and where stages are of fixed
  size, something takes the place of what is not drawn; else nothing does.

  Args:
    release: how both data sets are sampled.
    k: the level of the record (position from 0).
    direction: "remove" or "add".

  Raises:
    PlanError: another direction.
  """
  if direction not in ("remove", "add"):
    raise plan_lib.PlanError(
        f"direction {direction!r} must be 'remove' or 'add'"
    )
  clip, stages = release.clip_level, release.plan.stages
  far = -1 if direction == "remove" else 1

  def replaced(j: int) -> bool:
    return j > clip or isinstance(stages[j], plan_lib.FixedSize)

  def sign(j: int) -> int:
    # Where nothing is drawn most of the time the sum is 0 then, from which
    # units beside the record would lead it back.
    return far if j > clip or (replaced(0) and replaced(j)) else 0

  return WorstCaseSigns(
      clip,
      tuple(sign(j) for j in range(k)),
      -1 if replaced(k) else 0,
  )


def worst_case_score(
    release: plan_lib.Release, k: int, direction: str
) -> scores.Score:
  """The score for the record of `canaries.worst_case`, as there."""
  hierarchy, plan = release.hierarchy, release.plan
  mechanism = release.mechanism
  signs = worst_case_signs(release, k, direction)
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
    law = _disjoint(release, rates, signs, k)
  else:
    law = _tree(release, rates, signs, k)
  return scores.Score(law=law, mechanism=mechanism, pass_steps=pass_steps)


def shifted_score(
    release: plan_lib.Release,
    *,
    rate: float,
    distance: float,
    direction: np.ndarray,
    offset: np.ndarray,
) -> scores.Score:
  """The score for a record that, where drawn, moves the sum along a line.

  Args:
    release: how steps are sampled, and what they release.
    rate: the probability that a step draws the record.
    distance: how far it moves the sum then, in clip norms.
    direction: of length 1.
    offset: the sum without the record, on average.
  """
  pass_steps = _pass_steps(release.plan)
  rate = 1.0 if pass_steps else rate
  return scores.Score(
      law=_law([(1 - rate, 1.0, 0.0, 0.0), (rate, 0.0, distance, 0.0)]),
      mechanism=release.mechanism,
      pass_steps=pass_steps,
      direction=direction,
      offset=offset,
  )


def single_unit_score(release: plan_lib.Release) -> scores.Score:
  """The score of each of many primary units that have a coordinate each."""
  plan, mechanism = release.plan, release.mechanism
  pass_steps = _pass_steps(plan)
  rate = 1.0 if pass_steps else float(plan.stages[0].rate(np.asarray(1)))
  together = 1
  if mechanism.noisy_inner_steps:
    assert plan.episode is not None  # As above.
    together = plan.episode.way * plan.episode.query
  law = _law([(1 - rate, 1.0, 0.0, 0.0), (rate, 0.0, together, together)])
  return scores.Score(law=law, mechanism=mechanism, pass_steps=pass_steps)


def _pass_steps(plan: plan_lib.SamplingPlan) -> int:
  """The steps of one pass over the primary units, 0 where there are none."""
  first = plan.stages[0]
  return first.steps if isinstance(first, plan_lib.RandomAllocation) else 0


def _tree(
    release: plan_lib.Release,
    rates: list[float],
    signs: WorstCaseSigns,
    k: int,
) -> scores.Law:
  """Clip units that are drawn units of the hierarchy."""
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


def _disjoint(
    release: plan_lib.Release,
    rates: list[float],
    signs: WorstCaseSigns,
    k: int,
) -> scores.Law:
  """Tasks that are groups of drawn classes; all of them are at full length."""
  plan = release.plan
  assert plan.episode is not None  # Classes are drawn for tasks.
  drawn = plan_lib.capacities(release.hierarchy, plan)
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
) -> scores.Law:
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
  return scores.Law(
      stats.binom.pmf(counts, tasks, present),
      stats.binom.pmf(counts, tasks, absent),
      sums,
      np.full(tasks + 1, float(tasks)),
  )


def _law(outcomes: list[tuple[float, float, float, float]]) -> scores.Law:
  """From rows (present, absent, sum, units) of outcomes that can happen."""
  kept = [row for row in outcomes if row[0] > 0 or row[1] > 0]
  return scores.Law(*np.asarray(kept, np.float64).T)

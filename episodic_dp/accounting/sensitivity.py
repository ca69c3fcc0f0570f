"""From a release to the rates and distances of its units.

Distances are in standard deviations of the noise. With z the noise multiplier
and M_j the largest number of clip units that are sampled under any one unit of
level j (over siblings; 1 at the clip level and below):

  own stage        2/z inside a clip unit; else M/z where the stage is `Poisson`
                   or `All` (the unit is absent) and 2M/z where it is
                   `FixedSize` (another unit takes its place);
  outer stage j    the same with M_j; only stages of rate below 1 have one.

Tasks of form "disjoint" are groups of `way` consecutive classes in drawn order,
and the order within each unit is uniformly random, so a unit that is replaced
is replaced in its own place: it changes exactly the tasks that its block of
classes touches. A block of b classes that starts at a multiple of b touches
b / way tasks if way divides b, one if b divides way, and never more than the
largest count over its possible places. M_j is that count.

Units that a step can draw at several places (tasks of form "independent",
records with copies): see `recurring_units`; clip units inside a task whose
inner steps are noisy: see `_sample_level`.
"""

import dataclasses
import functools
import math

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import assumptions
from episodic_dp.accounting import distances
from episodic_dp.accounting import kinds
from episodic_dp.accounting import recurring_units
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.plan import soundness


@functools.lru_cache(maxsize=64)  # A ledger asks after every step.
def unit_profiles(
    release: plan_lib.Release, level: str
) -> unit_profile.UnitProfiles:
  """Find the distinct kinds of units of a level, none dominated by another.

  Args:
    release: with a noise multiplier above 0.
    level: the privacy unit.

  Returns:
    One `Amplification` per distinct tuple of rates and distances, or one
    `Recurrence` where a unit of the level can be drawn several times in one
    step. The profile grows with every rate and distance, so a kind that is
    nowhere above another is left out, and more than `kinds.MAX_KINDS`
    are merged in groups, each taking its largest rates and distances.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: there is no such level, or no noise.
  """
  hierarchy, mechanism = release.hierarchy, release.mechanism
  plan_lib.check_level(release, level)
  assumptions.refuse_un_noised(mechanism)
  if mechanism.noise_multiplier == 0:
    raise plan_lib.PlanError(
        "noise_multiplier is 0: distances are in standard deviations of the"
        " noise, so give a positive one (epsilon is infinite without noise)"
    )
  k = hierarchy.level_index(level)
  episode = release.plan.episode
  if episode is not None and episode.form == "independent":
    return recurring_units.independent(release, k)
  if hierarchy.copies and k > 0:
    return recurring_units.copied(release, k)
  if release.sample_level:
    return _sample_level(release, k)
  return _tree(release, k)


def _tree(
    release: plan_lib.Release, k: int
) -> tuple[amplification.Amplification, ...]:
  """Units of a tree of partitions."""
  plan, clip = release.plan, release.clip_level
  z = float(release.mechanism.noise_multiplier)
  sizes, touched = distances.paths(release, k)
  rows = []
  for size, count in zip(sizes, touched):
    rates = [
        float(plan.stages[j].rate(np.asarray(size[j]))) for j in range(k + 1)
    ]
    lengths = [
        distances.moved(plan.stages[j], int(count[j]), inside=j > clip) / z
        for j in range(k + 1)
    ]
    rows.append((*rates, *lengths))
  return tuple(
      amplification.Amplification(
          row[:k], row[k], row[k + 1 : -1], row[-1]
      )
      for row in kinds.front(rows)
  )


def inclusion_rate(release: plan_lib.Release, level: str) -> float:
  """Compute the largest probability that a step draws a unit of the level.

  `plan.inclusion_rate` is that of one place, in one task or one primary unit;
  here a unit that can be drawn at several places counts at all of them.
  """
  hierarchy, plan = release.hierarchy, release.plan
  k = hierarchy.level_index(level)
  if plan.episode is not None and plan.episode.form == "independent":
    found = recurring_units.in_tasks(release, k)
  elif k > 0 and hierarchy.most_copies is not None and hierarchy.most_copies[k]:
    found = recurring_units.in_holders(release, k)
  else:
    return plan_lib.inclusion_rate(hierarchy, plan, level)
  return max(kind.inclusion_rate for kind in found)


def _sample_level(
    release: plan_lib.Release, k: int
) -> tuple[amplification.Amplification, ...]:
  """Sample-level DP-MAML: noisy inner steps, one clip unit per query example.

  Algorithm 2 of "Meta-Learning with Differential Privacy" (DP-MAML), with
  first-order outer gradients and averages over public constants.

  Every level. A task releases the sum of the clipped first-order gradients of
  its way * query query examples, whatever it adapted to: one clip unit of norm
  way * query * C. So the distances are those of clipping per task with the
  noise multiplier z / (way * query); support examples give no outer gradient.

  Examples. Let t be an example, and its class be drawn. The last stage draws n
  = shot + query of N > n examples in uniformly random order, the first `shot`
  being the support. With probability n / N one of these places is t's; given
  that none is, the draw is distributed as without t, and given that one is, the
  same with a uniform other example in that place. So M(T) = (1 - p) M_0 +
  p_s M_s + p_q M_q with M_0 = M(T - t), and by joint convexity it is at most as
  bad as the worse of the two mixtures that put all of p = n / N on one role. In
  M_q one query example differs: the outer sum moves by 2C. In M_s one support
  example differs: each of the S inner steps releases a sum that moves by at
  most 2 C_inner with noise z_inner C_inner, given the ones before; together
  they are dominated by one Gaussian at distance 2 sqrt(S) / z_inner. All else
  reads them and other examples only, which holds for first-order gradients: a
  second-order one reads the support set again, without noise. So either way the
  pair is dominated at 2 max(sqrt(S) / z_inner, 1 / z). Where the class is not
  drawn the distances above hold, and the proof of `amplification` splits the
  divergence before it bounds its parts.
  """
  mechanism, episode = release.mechanism, release.plan.episode
  assert episode is not None
  assert mechanism.inner_noise_multiplier and mechanism.inner_steps
  z = float(mechanism.noise_multiplier)
  tasks = dataclasses.replace(
      mechanism,
      clip_unit=soundness.task_unit(release),
      noise_multiplier=z / (episode.way * episode.query),
      inner_clip_norm=None,
      inner_noise_multiplier=None,
  )
  found = _tree(release.replace(mechanism=tasks), k)
  if k < release.hierarchy.depth - 1:
    return found
  inner = mechanism.inner_noise_multiplier / math.sqrt(mechanism.inner_steps)
  return tuple(
      dataclasses.replace(kind, unit_sensitivity=2 / min(inner, z))
      for kind in found
  )

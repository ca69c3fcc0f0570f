"""Sensitivity: the rates and distances of a release's units.

Distances are in standard deviations of the noise. Let z be the noise
multiplier, M_j the largest number of clip units that are sampled under the
path's unit of level j (1 at the clip level and below) and M'_j the largest
number under any one of its siblings:
  own stage        2/z inside a clip unit; otherwise M/z if the unit is absent
                   (`Poisson`, `All`, and `FixedSize(n)` of n or fewer), and
                   (M + M')/z if another unit replaces it (`FixedSize(n)` of
                   more than n);
  outer stage j    the same with M_j, M'_j; only stages of rate below 1 have
                   one.

A unit that is sampled but contributes nothing (because of `Poisson` stages
below it) changes nothing. If no other unit replaces it, its own rate is the
probability that it is sampled with content.

Tasks of form "disjoint" are groups of `way` consecutive classes in sampled
order, and the order within each unit is uniformly random. So a unit that is
replaced is replaced in its own place: it changes exactly the tasks that its
block of classes touches. A block of b classes that starts at a multiple of b
touches b / way tasks if way divides b, one if b divides way, and never more
than the largest count over its possible places. M_j is that count.

Units that a step can sample at several places (tasks of form "independent",
records with copies) are those of `recurrence`. `_sample_level` treats clip
units inside a task with noisy inner steps.
"""

import dataclasses
import functools
import math

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import distances
from episodic_dp.accounting import recurrence
from episodic_dp.accounting import report
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles.amplification import UnitProfile


@functools.lru_cache(maxsize=64)  # A ledger asks after every step.
def unit_profiles(
    release: plan_lib.Release,
    level: str,
    *,
    replaced: bool = False,
) -> tuple[UnitProfile, ...]:
  """Find the distinct types of units of a level, none dominated by another.

  Args:
    release: a release with a noise multiplier above 0.
    level: the privacy unit.
    replaced: whether neighbours differ in a unit's data, not in its presence;
      for units that recur in a step it gives ().

  Returns:
    One `Amplification` for each distinct tuple of rates and distances; one
    `Recurrence` if a unit of the level can be sampled several times in one
    step; one `RandomCount` or `RandomType` if it or its siblings have a random
    number of clip units. The profile grows with every rate and distance, so a
    type that exceeds no other is omitted. More than `distances.MAX_TYPES` are
    merged in groups, each with its largest rates and distances.

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: there is no such level, or no noise.
  """
  hierarchy, mechanism = release.hierarchy, release.mechanism
  release.check_level(level)
  report.refuse_un_noised(mechanism)
  if mechanism.noise_multiplier == 0:
    raise plan_lib.PlanError(
        "noise_multiplier=0: distances are in standard deviations of the"
        " noise, so give a positive one (epsilon is infinite without noise)"
    )
  k = hierarchy.level_index(level)
  if release.sample_level:
    return _sample_level(release, k, replaced=replaced)
  if recurrence.recurs(release, k):
    return recurrence.units(release, k, replaced=replaced)
  if distances.has_random_number(release, k):
    return distances.averaged(release, k, replaced=replaced)
  return distances.tree(release, k, replaced=replaced)


def inclusion_rate(release: plan_lib.Release, level: str) -> float:
  """Compute the largest probability that a step samples a unit of the level.

  `plan.inclusion_rate` is for one place, in one task or one primary unit. Here
  a unit that can be sampled at several places counts at all of them.
  """
  hierarchy, plan = release.hierarchy, release.plan
  k = hierarchy.level_index(level)
  if not recurrence.recurs(release, k):
    return plan_lib.inclusion_rate(hierarchy, plan, level)
  kinds = recurrence.places(release, distances.paths(release, k).rates)
  return max(kind.inclusion_rate for kind in kinds)


def _sample_level(
    release: plan_lib.Release, k: int, *, replaced: bool = False
) -> tuple[amplification.Amplification, ...]:
  """Describe units of sample-level DP-MAML, which clips query examples.

  Algorithm 2 of "Meta-Learning with Differential Privacy" (DP-MAML), with
  first-order outer gradients and averages over public constants.

  Every level. A task releases the sum of the clipped first-order gradients of
  its way * query query examples, whatever it adapted to: one clip unit of norm
  way * query * C. So the distances are those of clipping per task with the
  noise multiplier z / (way * query); support examples give no outer gradient.

  Examples. Let t be an example whose class is sampled. The last stage samples
  n = shot + query of N > n examples in uniformly random order; the first `shot`
  are the support. With probability n / N one of these places is t's. Given that
  none is, the sample is distributed as without t. Given that one is, it is the
  same with a uniform other example in that place. So M(T) = (1 - p) M_0 +
  p_s M_s + p_q M_q with M_0 = M(T - t), and by joint convexity it is at most as
  bad as the worse of the two mixtures that put all of p = n / N on one role. In
  M_q one query example differs: the outer sum moves by 2C. In M_s one support
  example differs: each of the S inner steps releases a sum that moves by at
  most 2 C_inner with noise z_inner C_inner, given the ones before. Together
  they are dominated by one Gaussian at distance 2 sqrt(S) / z_inner. Everything
  else reads only them and other examples. This holds for first-order gradients:
  a second-order gradient reads the support set again, without noise. So either
  way the pair is dominated at 2 max(sqrt(S) / z_inner, 1 / z). If the class is
  not sampled the distances above hold, and the proof of `amplification` splits
  the divergence before it bounds its parts.
  """
  mechanism, episode = release.mechanism, release.plan.episode
  assert episode is not None
  assert mechanism.inner_noise_multiplier and mechanism.inner_steps
  z = float(mechanism.noise_multiplier)
  tasks = dataclasses.replace(
      mechanism,
      clip_unit=release.task_unit,
      noise_multiplier=z / (episode.way * episode.query),
      inner_clip_norm=None,
      inner_noise_multiplier=None,
  )
  found = distances.tree(release.replace(mechanism=tasks), k, replaced=replaced)
  if k < release.hierarchy.depth - 1:
    return found
  inner = mechanism.inner_noise_multiplier / math.sqrt(mechanism.inner_steps)
  own = 2 / min(inner, z)
  return tuple(
      dataclasses.replace(
          kind,
          unit_sensitivity=own,
          # No less than half of the own: see section 3 of the proof.
          outer_distances=tuple(
              max(d, own / 2) for d in kind.outer_distances[:k]
          ) + (own,) * replaced,
      )
      for kind in found
  )

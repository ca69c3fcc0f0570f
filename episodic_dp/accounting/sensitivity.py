"""From a release to the rates and distances of its units.

Distances are in standard deviations of the noise. With z the noise multiplier,
M_j the largest number of clip units that are drawn under the path's unit of
level j (1 at the clip level and below) and M'_j the largest number under any
one of its siblings:

  own stage        2/z inside a clip unit; else M/z where the unit is absent
                   (`Poisson`, `All`, and `FixedSize(n)` of n or fewer), and
                   (M + M')/z where another unit takes its place (`FixedSize(n)`
                   of more than n);
  outer stage j    the same with M_j, M'_j; only stages of rate below 1 have
                   one.

A unit that is drawn but brings nothing (`Poisson` stages below it) changes
nothing: where no other unit takes its place, its own rate is the probability
that it is drawn with content.

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
from episodic_dp.accounting import drawn_below
from episodic_dp.accounting import kinds
from episodic_dp.accounting import recurring_units
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.plan import soundness


@functools.lru_cache(maxsize=64)  # A ledger asks after every step.
def unit_profiles(
    release: plan_lib.Release, level: str, *, replaced: bool = False
) -> unit_profile.UnitProfiles:
  """Find the distinct kinds of units of a level, none dominated by another.

  Args:
    release: with a noise multiplier above 0.
    level: the privacy unit.
    replaced: neighbours differ in a unit's data, not in its presence: the own
      distance and rate of a tree's units are those of `replace_one`.

  Returns:
    One `Amplification` per distinct tuple of rates and distances, or one
    `Recurrence` where a unit of the level can be drawn several times in one
    step, or one `RandomCount` or `Averaged` where it or its siblings draw a
    random number of clip units. The profile grows with every rate and distance,
    so a kind that is nowhere above another is left out, and more than
    `kinds.MAX_KINDS` are merged in groups, each taking its largest rates and
    distances.

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
  copies = hierarchy.most_copies[k] if hierarchy.most_copies and k else 1
  if copies > 1:
    return recurring_units.copied(release, k)
  if release.sample_level:
    return _sample_level(release, k)
  if not replaced and drawn_below.is_random(release, k):
    return drawn_below.unit_profiles(release, k)
  return _tree(release, k, replaced=replaced)


def _tree(
    release: plan_lib.Release, k: int, *, replaced: bool = False
) -> tuple[amplification.Amplification, ...]:
  """Units of a tree of partitions; see `unit_profiles` for `replaced`."""
  found: dict[tuple[float, ...], amplification.Amplification] = {}
  for path in zip(*distances.paths(release, k)):
    kind = _kind(release, k, *path, replaced=replaced)
    # An outer stage of rate 1 never breaks: no distance there is the larger.
    far = (
        math.inf if r == 1 else d
        for r, d in zip(kind.outer_rates, kind.outer_distances)
    )
    found[(*kind.outer_rates, kind.rate, *far, kind.unit_sensitivity)] = kind
  return tuple(
      found.get(row) or amplification.Amplification(
          row[:k],
          row[k],
          tuple(d if math.isfinite(d) else row[-1] for d in row[k + 1 : -1]),
          row[-1],
      )
      for row in kinds.front(list(found))
  )


def _kind(
    release: plan_lib.Release,
    k: int,
    sizes: np.ndarray,
    own: np.ndarray,
    others: np.ndarray,
    filled: float,
    *,
    replaced: bool,
) -> amplification.Amplification:
  """The rates and distances of one of `distances.paths`."""
  stages, clip = release.plan.stages, release.clip_level
  z = float(release.mechanism.noise_multiplier)
  rates = [float(stages[j].rate(sizes[j])) for j in range(k + 1)]
  far = [
      distances.moved(
          stages[j], sizes[j], own[j], others[j], inside=j > clip
      ) / z
      for j in range(k + 1)
  ]
  if replaced:
    far[k] = distances.moved_if_replaced(
        stages[k], sizes[k], own[k], others[k], inside=k > clip
    ) / z
  elif not distances.exchanges(stages[k], sizes[k]):
    # Drawn without content, it changes nothing. What is drawn below it is off
    # by less than 2^-88 (`plan.sampling_error`): the share covers it.
    rates[k] *= min(1.0, float(filled) * (1 + 1e-12))
  return amplification.Amplification(
      tuple(rates[:k]), rates[k], tuple(far[:k]), far[k]
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

"""Sampling plans and regular trees, written in one line."""

from typing import Any

from episodic_dp import plan

# A clip norm that follows a private quantile, as fields of a mechanism.
QUANTILE: dict[str, Any] = dict(
    clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
    count_noise=5.0,
)
_STAGES: dict[type, Any] = {float: plan.Poisson, int: plan.FixedSize}


def sampling(
    *stages: Any,
    episode: plan.Episode | None = None,
    allow_short_units: bool = False,
    **of_episode: Any,
) -> plan.SamplingPlan:
  """Return a plan: a rate is a Poisson stage, a whole number a fixed size.

  Args:
    *stages: from the first level on.
    episode: its tasks.
    allow_short_units: as in the plan.
    **of_episode: the fields of the `plan.Episode`, if it is not given.
  """
  read = []
  for stage in stages:
    made = _STAGES.get(type(stage))
    read.append(stage if made is None else made(stage))
  if of_episode:
    episode = plan.Episode(**of_episode)
  return plan.SamplingPlan(
      tuple(read), episode=episode, allow_short_units=allow_short_units
  )


def tree(
    levels: str | tuple[str, ...], *sizes: int, **options: Any
) -> plan.Hierarchy:
  """Return a regular tree; its levels are names, or words of a text."""
  if isinstance(levels, str):
    levels = tuple(levels.split())
  return plan.Hierarchy.regular(sizes, levels=levels, **options)


def nested(
    levels: str | tuple[str, ...], sizes: Any, **options: Any
) -> plan.Hierarchy:
  """Return the tree of nested sizes; its levels are as those of `tree`."""
  if isinstance(levels, str):
    levels = tuple(levels.split())
  return plan.Hierarchy.from_sizes(sizes, levels=levels, **options)


def release(
    hierarchy: plan.Hierarchy,
    described: plan.SamplingPlan,
    clip_unit: str,
    noise_multiplier: float = 1.0,
    **mechanism: Any,
) -> plan.Release:
  """Return a release, with further fields of its `plan.Mechanism`."""
  return plan.Release(hierarchy, described, plan.Mechanism(
      clip_unit=clip_unit, noise_multiplier=noise_multiplier, **mechanism
  ))

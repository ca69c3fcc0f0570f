"""Sampling plans and regular trees, written in one line."""

from typing import Any

from episodic_dp import plan

_STAGES: dict[type, Any] = {float: plan.Poisson, int: plan.FixedSize}


def sampling(
    *stages: Any, episode: plan.Episode | None = None, **of_episode: Any
) -> plan.SamplingPlan:
  """Return a plan: a rate is a Poisson stage, a whole number a fixed size.

  Args:
    *stages: from the first level on.
    episode: its tasks, or
    **of_episode: the fields of their `plan.Episode`, if any.
  """
  read = []
  for stage in stages:
    made = _STAGES.get(type(stage))
    read.append(stage if made is None else made(stage))
  if of_episode:
    episode = plan.Episode(**of_episode)
  return plan.SamplingPlan(tuple(read), episode=episode)


def tree(
    levels: str | tuple[str, ...], *sizes: int, **options: Any
) -> plan.Hierarchy:
  """Return a regular tree; its levels are names, or words of a text."""
  if isinstance(levels, str):
    levels = tuple(levels.split())
  return plan.Hierarchy.regular(sizes, levels=levels, **options)

"""What a private step releases: the clip unit, the clip norm and the noise."""

import dataclasses
import math
from typing import Literal

from episodic_dp.plan import errors

EPISODE = "episode"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mechanism:
  """The released vector: sum of clipped gradients + N(0, (z C)^2 I).

  Attributes:
    clip_unit: the level whose sampled units give one clipped gradient each, or
      "episode" for tasks that the episode forms out of classes.
    noise_multiplier: z >= 0; 0 is a run without privacy (epsilon = inf).
    clip_norm: C > 0, the l2 bound of one clip unit's gradient; infinity is
      allowed only without noise.
    clip_by: "global" clips the whole gradient to C; "layer" clips each of m
      parameter arrays to C / sqrt(m), so that the whole is still within C.
    order: "first" or "second" order gradients, or None when the guarantee does
      not depend on it (clip units that are whole tasks).
    inner_steps: adaptation steps inside a task, or None as for `order`.
  """

  clip_unit: str
  noise_multiplier: float
  clip_norm: float = 1.0
  clip_by: Literal["global", "layer"] = "global"
  order: Literal["first", "second"] | None = None
  inner_steps: int | None = None

  def __post_init__(self):
    z, c = self.noise_multiplier, self.clip_norm
    if not (isinstance(z, (int, float)) and math.isfinite(z) and z >= 0):
      raise errors.PlanError(
          f"noise_multiplier {z!r} must be a finite number of at least 0"
      )
    if not (isinstance(c, (int, float)) and c > 0):  # also refuses NaN
      raise errors.PlanError(f"clip_norm {c!r} must be a positive number")
    if math.isinf(c) and z > 0:
      raise errors.PlanError(
          "clip_norm is infinite with noise_multiplier"
          f" {z}: give a finite clip_norm, or noise_multiplier=0"
      )
    if self.clip_by not in ("global", "layer"):
      raise errors.PlanError(
          f"clip_by {self.clip_by!r} must be 'global' or 'layer'"
      )
    if self.order not in (None, "first", "second"):
      raise errors.PlanError(
          f"order {self.order!r} must be 'first', 'second' or None"
      )
    if self.inner_steps is not None and self.inner_steps < 1:
      raise errors.PlanError(
          f"inner_steps {self.inner_steps} must be at least 1"
      )

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
    inner_clip_norm: the l2 bound of one support example's gradient in a noisy
      inner step, or None where inner steps are not noisy.
    inner_noise_multiplier: z_inner > 0: a noisy inner step adds
      N(0, (z_inner inner_clip_norm)^2 I) to its sum of clipped gradients; None
      as for `inner_clip_norm`.

  With noisy inner steps and examples as clip units this is sample-level DP-MAML
  (Algorithm 2 of "Meta-Learning with Differential Privacy"): a support example
  reaches the output through `inner_steps` noisy sums, a query example through
  the outer sum. Both sums are divided by public constants only, no layer may
  mix examples (batch normalisation does), and both clip norms are fixed.
  """

  clip_unit: str
  noise_multiplier: float
  clip_norm: float = 1.0
  clip_by: Literal["global", "layer"] = "global"
  order: Literal["first", "second"] | None = None
  inner_steps: int | None = None
  inner_clip_norm: float | None = None
  inner_noise_multiplier: float | None = None

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
    self._check_inner_noise()

  @property
  def noisy_inner_steps(self) -> bool:
    """Whether the steps inside a task are clipped and noised too."""
    return self.inner_noise_multiplier is not None

  def _check_inner_noise(self):
    names = ("inner_clip_norm", "inner_noise_multiplier")
    values = (self.inner_clip_norm, self.inner_noise_multiplier)
    if values == (None, None):
      return
    if None in values:
      raise errors.PlanError(
          f"inner_clip_norm is {values[0]!r} and inner_noise_multiplier"
          f" {values[1]!r}: give both for noisy inner steps, or neither"
      )
    for name, value in zip(names, values):
      if not (
          isinstance(value, (int, float)) and math.isfinite(value) and value > 0
      ):
        raise errors.PlanError(
            f"{name} {value!r} must be a finite positive number"
        )
    if self.inner_steps is None or self.order is None:
      raise errors.PlanError(
          f"inner_steps is {self.inner_steps!r} and order {self.order!r}: the"
          " guarantee of noisy inner steps depends on both, so give them"
      )

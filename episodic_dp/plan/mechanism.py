"""The released vector of a private step: clip unit, clip norm and noise."""

import dataclasses
import math
from typing import Any, Literal

from episodic_dp import _validate
from episodic_dp.errors import PlanError

EPISODE = "episode"
"""The `clip_unit` of tasks that the episode makes from classes."""

# The fields of each clipping rule, with an initial value to suggest for each.
_ADAPTIVE: dict[str, dict[str, float]] = {
    "fixed": {},
    "private_quantile": dict(clip_quantile=0.5, clip_rate=0.2, count_noise=10),
    "percentile_window": dict(clip_percentile=90, clip_window=100),
}


def _check_squared(name: str, value: float | None) -> None:
  """Refuse noise whose square would be 0 or infinite: accountants square it."""
  if not 1e-30 <= _validate.positive(name, value) <= 1e30:
    raise _validate.refusal(name, value, "a number from 1e-30 to 1e+30")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mechanism:
  """The release: sum of clipped gradients + N(0, (z C)^2 I).

  Attributes:
    clip_unit: level whose sampled units yield one clipped gradient each, or
      "episode" for tasks that the episode makes from classes.
    noise_multiplier: z, the standard deviation of the noise in clip norms, from
      1e-30 to 1e30; 0 for a run without privacy (epsilon = inf).
    clip_norm: C > 0, the largest l2 norm of one clip unit's gradient. Infinity
      is allowed only without noise. An adaptive clip norm starts here.
    clip_by: "global" clips the whole gradient to C; "layer" clips each of m
      parameter arrays to C / sqrt(m), so that the whole is still within C.
    clipping: "fixed" keeps C. "private_quantile" adapts C to a quantile of the
      norms by a noised count, whose cost is part of the noise multiplier.
      "percentile_window" takes a percentile of raw norms and has no guarantee.
      With clip_by="layer" each array has a separate norm.
    clip_quantile: gamma, the wanted share of norms within C, above 0 and below
      1 (private_quantile).
    clip_rate: lr > 0 of the update C <- C exp(-lr (share - gamma))
      (private_quantile).
    count_noise: sigma_b > z / 2, the standard deviation of the noise on the
      count of norms within C. With m arrays each count has sqrt(m) times this
      noise (private_quantile).
    clip_percentile: k, above 0 and at most 100. C becomes the k-th percentile
      of the norms in the window and never rises, so start with a `clip_norm`
      above the norms (percentile_window).
    clip_window: W, an even number of clip units whose norms are kept. C is
      updated after every W / 2 of them (percentile_window).
    order: "first" or "second" order gradients; None if the guarantee does not
      depend on it (clip units that are whole tasks).
    inner_steps: number of adaptation steps inside a task; None as for `order`.
    inner_clip_norm: largest l2 norm of one support example's gradient in a
      noisy inner step; None without noise in inner steps.
    inner_noise_multiplier: z_inner > 0. A noisy inner step adds
      N(0, (z_inner inner_clip_norm)^2 I) to its sum of clipped gradients; None
      as for `inner_clip_norm`.

  Noisy inner steps with examples as clip units are sample-level DP-MAML
  (Algorithm 2 of "Meta-Learning with Differential Privacy"). A support example
  reaches the output through `inner_steps` noisy sums, a query example through
  the outer sum. Both sums are divided by public constants only, no layer may
  mix examples (batch normalisation does), and both clip norms are fixed.

  "private_quantile" follows Andrew et al., "Differentially Private Learning
  with Adaptive Clipping", 2021, section 2. A step releases two noised sums:
  sum(g) + N(0, (z' C)^2 I) with z' = `gradient_noise_multiplier`, and
  sum(b - 1/2) + N(0, sigma_b^2), where b is 1 for a clip unit whose norm is
  within C. In standard deviations of the noise one clip unit is the vector
  (g / (z' C), (b - 1/2) / sigma_b), whose norm is at most
  sqrt(1 / z'^2 + 1 / (2 sigma_b)^2) = 1 / z. So the pair is one Gaussian
  mechanism that sums vectors of norm 1 with noise multiplier z, exactly like a
  step of fixed clipping. This holds whether a unit appears, is replaced by
  another (both parts can then move twice as far) or has M clip units. C depends
  on earlier noised releases only. With clip_by="layer" the vector is
  (g_j / (z' sqrt(m) C_j), (b_j - 1/2) / (sqrt(m) sigma_b)) over the m arrays,
  of the same norm.

  "percentile_window" is the adaptive clipping of "Meta-Learning with
  Differential Privacy", section 5.2.1, with W = 2L and a step of L for lots of
  L tasks. Its C is computed from private norms without noise, so no noise on
  the gradients gives a guarantee.

  Examples:
    >>> from episodic_dp import plan
    >>> m = plan.Mechanism(
    ...     clip_unit="participant", clip_norm=1.0, noise_multiplier=1.0
    ... )
    >>> m.guaranteed
    True
  """

  clip_unit: str
  noise_multiplier: float
  clip_norm: float = 1.0
  clip_by: Literal["global", "layer"] = "global"
  clipping: Literal["fixed", "private_quantile", "percentile_window"] = "fixed"
  clip_quantile: float | None = None
  clip_rate: float | None = None
  count_noise: float | None = None
  clip_percentile: float | None = None
  clip_window: int | None = None
  order: Literal["first", "second"] | None = None
  inner_steps: int | None = None
  inner_clip_norm: float | None = None
  inner_noise_multiplier: float | None = None

  def __post_init__(self) -> None:
    z, c = self.noise_multiplier, self.clip_norm
    if z != 0 or isinstance(z, bool):
      _check_squared("noise_multiplier", z)
    if c != math.inf:
      _validate.positive("clip_norm", c)
    if math.isinf(c) and (z > 0 or self.clipping == "private_quantile"):
      raise PlanError(
          f"clip_norm=inf with noise_multiplier={z} and"
          f" clipping='{self.clipping}': expected a finite clip_norm, or"
          " noise_multiplier=0"
      )
    _validate.one_of("clip_by", self.clip_by, ("global", "layer"))
    _validate.one_of("order", self.order, (None, "first", "second"))
    _validate.one_of("clipping", self.clipping, _ADAPTIVE)
    if self.inner_steps is not None:
      _validate.count("inner_steps", self.inner_steps, 1)
    self._check_inner_noise()
    self._check_clipping()

  @property
  def gradient_noise_multiplier(self) -> float:
    """Return z', where z' C is the standard deviation on the gradients.

    It is the noise multiplier itself, except with a noised count: then it is
    (z^-2 - (2 sigma_b)^-2)^(-1/2), which is larger.
    """
    if self.clipping != "private_quantile":
      return self.noise_multiplier
    assert self.count_noise is not None  # Checked.
    part = self.noise_multiplier / (2 * self.count_noise)
    return self.noise_multiplier / math.sqrt((1 - part) * (1 + part))

  @property
  def guaranteed(self) -> bool:
    """Return whether every use of private data is noised."""
    return self.noise_multiplier > 0 and self.clipping != "percentile_window"

  @property
  def with_fixed_norm(self) -> "Mechanism":
    """Return the mechanism with a fixed clip norm.

    It costs what "private_quantile" costs at the same noise multiplier, and
    accepts any, even one that leaves the count no noise.
    """
    unused: dict[str, Any] = {}
    for names in _ADAPTIVE.values():
      unused |= dict.fromkeys(names)
    return dataclasses.replace(self, clipping="fixed", **unused)

  @property
  def noisy_inner_steps(self) -> bool:
    """Return whether the steps inside a task are clipped and noised."""
    return self.inner_noise_multiplier is not None

  def _check_inner_noise(self) -> None:
    names = ("inner_clip_norm", "inner_noise_multiplier")
    values = (self.inner_clip_norm, self.inner_noise_multiplier)
    if values == (None, None):
      return
    if None in (*values, self.inner_steps, self.order):
      raise PlanError(
          f"inner_clip_norm={values[0]!r}, inner_noise_multiplier="
          f"{values[1]!r}, inner_steps={self.inner_steps!r},"
          f" order={self.order!r}: noisy inner steps need all four; without"
          " them leave out the first two"
      )
    for name, value in zip(names, values):
      _check_squared(name, value)

  def _check_clipping(self) -> None:
    for kind, names in _ADAPTIVE.items():
      for name, example in names.items():
        value = getattr(self, name)
        if (value is not None) != (kind == self.clipping):
          raise PlanError(
              f"{name}={value!r} with clipping={self.clipping!r}: expected a"
              f" number with clipping={kind!r} and None otherwise, such as"
              f" {name}={example} (in a command"
              f" --config.mechanism.{name}={example})"
          )
    if self.clipping == "private_quantile":
      _validate.fraction("clip_quantile", self.clip_quantile)
      _validate.positive("clip_rate", self.clip_rate)
      sigma = _validate.positive("count_noise", self.count_noise)
      z = self.noise_multiplier
      if sigma <= z / 2:
        raise PlanError(
            f"count_noise={sigma}: spends all of noise_multiplier={z} on the"
            f" count of norms; expected more than {z / 2}, such as {10 * z}"
        )
    elif self.clipping == "percentile_window":
      percentile = _validate.positive("clip_percentile", self.clip_percentile)
      window = _validate.count("clip_window", self.clip_window, 2)
      if percentile > 100:
        raise _validate.refusal("clip_percentile", percentile, "at most 100")
      if window % 2:
        raise _validate.refusal(
            "clip_window", window, "an even number, twice the tasks of a step"
        )

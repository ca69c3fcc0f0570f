"""How many times a random number of candidate runs is made, for `Selection`.

Papernot and Steinke, "Hyperparameter Tuning with Renyi Differential Privacy"
(ICLR 2022): the number of runs is itself random, drawn from one of these
distributions, and kept secret.
"""

import dataclasses
import math
from typing import Any

from episodic_dp import plan as plan_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class TruncatedNegativeBinomial:
  """K >= 1 with generating function ((1 - (1-g) x)^-s - 1) / (g^-s - 1).

  Attributes:
    shape: s above -1; 1 is the geometric distribution, 0 the logarithmic one
      (the limit of the formula).
    gamma: g in (0, 1); the smaller, the more runs.
  """

  shape: float
  gamma: float

  def __post_init__(self) -> None:
    _check("shape", self.shape, -1.0, 1e3)
    _check("gamma", self.gamma, 0.0, 1.0)

  @property
  def mean(self) -> float:
    """E K, rounded up a little."""
    s, g = self.shape, self.gamma
    log_g = math.log(g)
    # s / (1 - g^s), which is 1 / ln(1/g) at s = 0.
    share = -1 / log_g if s == 0 else s / -math.expm1(s * log_g)
    return (1 - g) / g * share * (1 + 1e-12)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoissonRuns:
  """K of a Poisson distribution; where it is 0, a constant is returned.

  Attributes:
    mean: E K, above 0.
  """

  mean: float

  def __post_init__(self) -> None:
    _check("mean", self.mean, 0.0, 1e9)


RunCount = TruncatedNegativeBinomial | PoissonRuns

_KINDS = {
    "truncated_negative_binomial": TruncatedNegativeBinomial,
    "poisson": PoissonRuns,
}


def geometric(mean: float) -> TruncatedNegativeBinomial:
  """The geometric distribution on 1, 2, ... with a mean above 1."""
  _check("mean", mean, 1.0, 1e9)
  return TruncatedNegativeBinomial(shape=1.0, gamma=1 / mean)


def logarithmic(gamma: float) -> TruncatedNegativeBinomial:
  """The logarithmic distribution: P(K = k) in proportion to (1 - g)^k / k."""
  return TruncatedNegativeBinomial(shape=0.0, gamma=gamma)


def to_dict(count: RunCount) -> dict[str, Any]:
  """Plain data for JSON."""
  (kind,) = (k for k, v in _KINDS.items() if isinstance(count, v))
  return {"kind": kind, **dataclasses.asdict(count)}


def from_dict(data: Any) -> RunCount:
  """What `to_dict` wrote.

  Raises:
    PlanError: a field is missing, unknown or wrong; one sentence.
  """
  if not isinstance(data, dict) or data.get("kind") not in _KINDS:
    raise plan_lib.PlanError(
        f"the number of runs is {data!r}: it must be an object whose kind is"
        f" one of {', '.join(_KINDS)}"
    )
  kind = _KINDS[data["kind"]]
  names = {f.name for f in dataclasses.fields(kind)}
  if set(data) != {"kind", *names}:
    raise plan_lib.PlanError(
        f"a number of runs of kind {data['kind']} has the fields"
        f" {sorted(names)}, not {sorted(set(data) - {'kind'})}"
    )
  return kind(**{name: data[name] for name in names})


def _check(name: str, value: float, low: float, high: float) -> None:
  number = isinstance(value, (int, float)) and not isinstance(value, bool)
  if not number or not low < value < high:
    raise plan_lib.PlanError(
        f"{name} {value!r} must lie between {low:g} and {high:g}"
    )

"""One pass of random allocation, from below.

Let X = P_1 / P_0 be the likelihood ratio of what one step releases with t's
primary unit in it, against noise around 0. Of a pass of T steps, of which k
were released, the ratio with t against without is

  S = (T - k + X_1 + ... + X_k) / T,    X_i independent under P_0,

and the loss of removing t is ln S under S dQ, that of adding it -ln S under dQ.
Outcomes of single steps are merged, which gives X fewer values, in two ways:

  a lattice    of ratios a + j h. For "remove" P_1 at a point is called the
               point times P_0 where it is no less, for "add" where it is no
               more; the rest is sent to the neighbouring point, as in
               `composition`. A convolution power gives the law of S.
  a threshold  only whether each step's release has a large ratio is seen: the
               number of those that do is binomial. It serves where X is too far
               spread for a lattice, and for very small delta.

Leaving out outcomes, or a part of them, leaves out parts of the supremum in H:
it is smaller for it.
"""

import dataclasses
import math

import numpy as np

from episodic_dp.accounting.lower_bounds import composition
from episodic_dp.accounting.lower_bounds import pairs

_CELLS = 1 << 16
_POINTS = 1 << 18
# A lattice is this fine, in deviations of one ratio.
_FINEST = 0.05
# Probability of ratios that are not told apart, and of sums left out.
_CUT, _SUM_TAIL = 1e-14, 1e-18
# Share of P_1 above the threshold; None for the lattice.
WAYS = (None, 0.5, 0.1, 1e-2)


@dataclasses.dataclass(frozen=True, eq=False)
class PassPair:
  """A pass, or the beginning of one, as one step.

  Attributes:
    step: what the step with t's primary unit releases, against noise around 0.
    steps: T.
    observed: k.
    above: the share of P_1 above the threshold; None for a lattice.
  """

  step: pairs.Pair
  steps: int
  observed: int
  above: float | None
  _found: dict[pairs.Direction, pairs.Losses] = dataclasses.field(
      default_factory=dict, init=False
  )

  @property
  def distance(self) -> None:
    """No single Gaussian."""
    return None

  @property
  def key(self) -> bytes:
    """What tells it from other data sets."""
    pass_of = (self.steps, self.observed, self.above)
    return self.step.key + repr(pass_of).encode()

  def losses(
      self, direction: pairs.Direction, tail: float, points: int
  ) -> pairs.Losses:
    """The loss of the pass; see `pairs.Pair.losses`. Its grid is its own."""
    del tail, points
    if direction not in self._found:
      self._found[direction] = self._losses(direction)
    return self._found[direction]

  def _losses(self, direction: pairs.Direction) -> pairs.Losses:
    if self.above is None:
      ratio, weights, lost = self._by_lattice(direction)
    else:
      ratio, weights, lost = self._by_threshold(self.above)
    some = weights > 1e-300
    ratio, weights = ratio[some], weights[some]
    # Cells have relative rounding errors, once for every step.
    slack = 2 * self.observed * pairs.ROUNDING
    losses = np.log(ratio) if direction == "remove" else -np.log(ratio)
    probs = weights * ratio if direction == "remove" else weights
    return pairs.Losses(losses - slack, probs * (1 - slack), lost)

  def _by_threshold(
      self, share: float
  ) -> tuple[np.ndarray, np.ndarray, float]:
    """(S, its weights without t, 0), where large ratios alone are seen."""
    # Lazy import: half of what it takes to import the accountant.
    from scipy import stats

    loss, p, _ = self.step.losses("remove", _CUT, 1 << 12)
    order = np.argsort(-loss)
    p, q = np.cumsum(p[order]), np.cumsum((p * np.exp(-loss))[order])
    at = min(int(np.searchsorted(p, share * p[-1])), p.size - 1)
    with_t, without = float(p[at]), min(float(q[at]), 1.0)
    high = with_t / without
    low = max(1 - with_t, 0.0) / (1 - without) if without < 1 else 0.0
    count = np.arange(self.observed + 1)
    weights = stats.binom.pmf(count, self.observed, without)
    rest = self.steps - self.observed
    ratio = (rest + high * count + low * (self.observed - count)) / self.steps
    return np.maximum(ratio, 1e-290), weights * (1 - 1e-10), 0.0

  def _by_lattice(
      self, direction: pairs.Direction
  ) -> tuple[np.ndarray, np.ndarray, float]:
    """(S, its weights without t, what these may be wrong by)."""
    nothing = np.ones(1), np.full(1, 1e-200), 0.0
    loss, p, _ = self.step.losses("remove", _CUT, _CELLS)
    q = p * np.exp(-loss)
    # `losses` rounds P_1 down and P_0 up, which the slack makes up for.
    ratio = p / q
    if ratio.max() > 1e9:
      return nothing
    mean = float(q @ ratio)
    deviation = math.sqrt(float(q @ (ratio - mean) ** 2))
    widest = 2 * float(ratio.max()) + 24 * deviation * math.sqrt(self.observed)
    h = widest / _POINTS
    lowest = float(ratio.min())
    if h > _FINEST * deviation or not h > 0:
      return nothing
    cell = np.floor((ratio - lowest) / h).astype(np.int64)
    above = np.clip(ratio - (lowest + cell * h), 0.0, h)
    surplus, wanted = q * above, q * (h - above)
    if direction == "remove":
      first, weights = composition.gathered(
          cell, q, 1 - above / h, surplus * (1 - 1e-6), wanted * (1 + 1e-6)
      )
    else:  # From the other side: the point above is the one below.
      first, weights = composition.gathered(
          -cell - 1, q, above / h, wanted * (1 - 1e-6),
          surplus * (1 + 1e-6),
      )
      weights = weights[::-1]
      first = -first - weights.size + 1
    total = composition.convolved(
        [composition.Lattice(first, weights, self.observed)], h, 0.0, _SUM_TAIL
    )
    if total is None:
      return nothing
    sums = total.places * h + self.observed * lowest
    rest = self.steps - self.observed
    s = np.maximum((rest + sums) / self.steps, 1e-290)
    values = np.maximum(total.values, 0.0) * math.exp(total.log_factor)
    return s, values, total.error * max(1.0, float(s.max()))

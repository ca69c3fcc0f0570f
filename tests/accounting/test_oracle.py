"""The one-step profile of a tree against 50 digits, at extreme parameters.

The oracle shares nothing with the code: it takes the divergence of outputs that
lie on one line on the same side,

  max over x of  A Phi(x) - sum_i k_i Phi(x - d_i),

finds the x by bisection and subtracts in high precision.
"""

import mpmath
import numpy as np
import pytest

from episodic_dp.accounting.profiles import amplification

DIGITS = 50


def oracle(outer_rates, rate, outer_distances, own, log_alpha, direction):
  """The divergence, as an mpmath number."""
  with mpmath.workdps(DIGITS):
    p, u = mpmath.mpf(rate), mpmath.mpf(log_alpha)
    rates = [mpmath.mpf(r) for r in outer_rates]
    q = mpmath.fprod(rates)
    more = mpmath.expm1(u)  # alpha - 1
    terms = []
    for j, d in enumerate(outer_distances):
      missed = mpmath.fprod(rates[:j]) * (1 - rates[j])
      terms.append((more * missed, mpmath.mpf(d)))
    if direction == "remove":
      weight = q * p
      terms.append((q * (more + p), mpmath.mpf(own)))
    else:
      weight = q * (p - more * (1 - p))
      terms.append(((1 + more) * q * p, mpmath.mpf(own)))
    if weight <= 0:
      return mpmath.mpf(0)
    terms = [(k, d) for k, d in terms if k > 0]

    def slope(x):  # of the logarithm of the negative part over A's, rising in x
      return mpmath.fsum(
          k / weight * mpmath.exp(d * x - d * d / 2) for k, d in terms
      ) - 1

    low, high = mpmath.mpf(-1), mpmath.mpf(1)
    while slope(low) > 0:
      low *= 2
    while slope(high) < 0:
      high *= 2
    for _ in range(80):  # The value is flat there: x to 20 digits is plenty.
      middle = (low + high) / 2
      low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return weight * mpmath.ncdf(low) - mpmath.fsum(
        k * mpmath.ncdf(low - d) for k, d in terms
    )


def check(kind, log_alpha, direction):
  got = float(kind.divergence(np.asarray([log_alpha]), direction)[0])
  truth = oracle(
      kind.outer_rates, kind.rate, kind.outer_distances, kind.unit_sensitivity,
      log_alpha, direction,
  )
  if truth < mpmath.mpf("1e-300"):
    assert got < 1e-299
    return False
  with mpmath.workdps(DIGITS):
    error = float(abs(mpmath.mpf(got) - truth) / truth)
  assert error < 1e-9, (kind, log_alpha, direction, got)
  return True


# Rates, noise and distances in clip norms: hierarchies of one to three stages.
EXTREMES = [
    ((), 1.0, (), 1.0),
    ((1.0,), 1e-9, (1.0,), 1.0),
    ((1e-9,), 1.0, (2.0,), 2.0),
    ((1e-5,), 1e-4, (1.0,), 2.0),
    ((0.004,), 0.2, (2.0,), 2.0),
    ((0.3, 1e-8), 0.3, (2.0, 2.0), 1.0),
    ((0.1, 0.5), 0.5, (20.0, 2.0), 2.0),
    ((1e-3, 0.999), 1e-6, (0.5, 3.0), 1.0),
]


@pytest.mark.parametrize("direction", amplification.DIRECTIONS)
@pytest.mark.parametrize("z", [0.3, 1.0, 30.0, 1000.0])
@pytest.mark.parametrize("outer_rates,rate,outer,own", EXTREMES)
@pytest.mark.few(16)
def test_extreme_parameters(outer_rates, rate, outer, own, z, direction):
  kind = amplification.Amplification(
      outer_rates, rate, tuple(d / z for d in outer), own / z
  )
  # The loss has the scale of eta d; the profile ends about 37 d further out.
  scale = kind.parent_rate * rate * own / z
  d = own / z
  losses = [
      0.0, 1e-3 * scale, 0.4 * scale, 20 * scale, 0.3 * d, 5 * d, 20 * d,
      d * d / 2 + 30 * d,
  ]
  compared = sum(check(kind, u, direction) for u in losses)
  assert compared >= 2

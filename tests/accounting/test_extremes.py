"""The whole range of parameters: finite, monotone, between two other bounds.

Rates down to 1e-9, 10^7 steps, noise multipliers from 0.3 to 1000 and deltas
down to 1e-15. Below lies what one test of the sum of all releases reveals, an
exact statement about the run; above lies the Renyi accountant. And every
approximation of the default accountant, made coarser, raises epsilon.
"""

import math

import numpy as np
import pytest
from scipy import special
from scipy import stats

from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.guarantee import get_accountant
from episodic_dp.accounting.profiles import amplification


def poisson(p, z):
  return (amplification.Amplification((1.0,), p, (1 / z,), 1 / z),)


def run_of(unit_profiles, steps):
  return (base.Phase(unit_profiles, steps),)


def revealed_by_the_sum(p, z, steps, delta, direction):
  """Epsilon that a threshold on the sum of all releases already needs.

  The sum of T steps is N(K / z, T) with K ~ Binomial(T, p), or N(0, T); for
  every event E of the first kind of run, epsilon >= ln((P(E) - delta) / Q(E)).
  """
  spread = math.sqrt(steps)
  mean, deviation = steps * p, math.sqrt(steps * p * (1 - p))
  drawn = np.unique(np.clip(
      np.round(np.concatenate([
          np.arange(40.0),
          mean + np.linspace(-12, 12, 4001) * max(deviation, 1.0),
      ])), 0, steps,
  ))
  if drawn.size < steps + 1 and np.diff(drawn).max() > 1:
    # A coarse lattice: the weight of each gap goes to its less telling end.
    edges = stats.binom.cdf(drawn, steps, p)
    weights = np.diff(edges, append=1.0)
    weights[0] += edges[0]
    if direction == "add":
      drawn = np.append(drawn[1:], steps)
  else:
    weights = stats.binom.pmf(drawn, steps, p)
  some = weights > 0
  log_weights, drawn = np.log(weights[some]), drawn[some]
  at = np.linspace(-12, drawn[-1] / (z * spread) + 40, 2000)
  sign = 1 if direction == "remove" else -1
  with_unit = special.logsumexp(
      log_weights
      + special.log_ndtr(sign * (drawn / (z * spread) - at[:, None])),
      axis=1,
  )
  without = special.log_ndtr(-sign * at)
  if direction == "remove":
    upper, lower = with_unit, without
  else:
    upper, lower = without, with_unit
  enough = upper > math.log(delta) + 1e-9
  if not enough.any():
    return 0.0
  gap = upper + np.log1p(-np.exp(math.log(delta) - np.maximum(upper, -700)),
                         where=enough, out=np.full_like(upper, -np.inf))
  return max(0.0, float((gap - lower)[enough].max()))


CASES = [
    (1e-9, 0.3, 10**7),
    pytest.param(1e-9, 1000.0, 10**7, marks=pytest.mark.slow),
    (1e-9, 1.0, 1),
    (1e-6, 1.0, 10**7),
    (0.004, 1.0, 10**5),
    (0.3, 30.0, 10**4),
    pytest.param(0.05, 1000.0, 10**7, marks=pytest.mark.slow),
    (1.0, 1000.0, 10**7),
    (1.0, 0.3, 1000),
]


@pytest.mark.parametrize("direction", amplification.DIRECTIONS)
@pytest.mark.parametrize("delta", [1e-5, 1e-15])
@pytest.mark.parametrize("p,z,steps", CASES)
def test_between_an_exact_lower_bound_and_renyi(p, z, steps, delta, direction):
  run = run_of(poisson(p, z), steps)
  got = get_accountant("pld").epsilon(run, direction, delta)
  above = get_accountant("rdp").epsilon(run, direction, delta)
  below = revealed_by_the_sum(p, z, steps, delta, direction)
  assert math.isfinite(got) and math.isfinite(above)
  assert below * (1 - 1e-6) <= got
  assert got <= above * (1 + 1e-3)


# Approximations of the default accountant -------------------------------------

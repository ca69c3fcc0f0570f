"""Lower bounds, of a step and over the whole range of parameters."""

import math

import numpy as np
import pytest
from scipy import special
from scipy import stats

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import lower_bounds
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.guarantee import get_accountant
from episodic_dp.accounting.profiles import amplification
from tests import plans
from tests.oracles import exact
from tests.oracles import worst_case

LEVELS = ("hospital", "patient", "record")


def release_of(sizes, stages, clip, z=1.0):
  levels = LEVELS[: len(sizes)]
  return plans.release(
      plans.tree(levels, *sizes), plans.sampling(*stages),
      clip, z,
  )


PLANS = {
    "poisson": ((50,), (0.1,), "hospital"),
    "fixed": ((50,), (5,), "hospital"),
    "tasks": ((4, 3), (0.3, 2), "hospital"),
    "examples": ((4, 3), (2, 1), "patient"),
    "users": ((4, 3), (0.4, 0.5), "patient"),
    "middle": (
        (3, 2, 2),
        (1, 1, 0.5),
        "patient",
    ),
}


@pytest.fixture
def coarse(monkeypatch):
  """An eighth of the points: bounds are looser, and bounds all the same."""
  monkeypatch.setattr(lower_bounds, "_COARSE", (1 << 9, 1 << 12))
  monkeypatch.setattr(lower_bounds, "_FINE", (1 << 13, 1 << 17))


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("neighbours", ["add-or-remove", "replace-one"])
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.few(2)
def test_it_is_at_most_the_guarantee(name, neighbours):
  release = release_of(*PLANS[name])
  asked = dict(steps=30, neighbours=neighbours)
  for level in release.levels:
    least = accounting.lower_bound(release, level=level, delta=1e-5, **asked)
    most = accounting.guarantee(release, level=level, delta=1e-5, **asked)
    assert 0 < least <= most.epsilon
    if len(release.levels) == 1:
      assert least > 0.85 * most.epsilon
  least = accounting.lower_bound(release, level=level, epsilon=1.0, **asked)
  most = accounting.guarantee(release, level=level, epsilon=1.0, **asked)
  assert 0 < least <= most.delta


@pytest.mark.parametrize("name", [n for n in PLANS if len(PLANS[n][0]) > 1])
def test_one_step_is_the_loss_of_an_enumerated_data_set(name):
  sizes, stages, clip = PLANS[name]
  release = release_of(*PLANS[name])
  h, c = release.hierarchy, release.clip_level
  for k, level in enumerate(release.levels):
    least = accounting.lower_bound(release, steps=1, level=level, epsilon=0.3)
    drawn = exact.pair(h, release.plan, k, 0, clip=c)
    truth = max(
        value
        for gradient in worst_case.gradients(h, k, 0)
        for value in exact.divergences(drawn, c, gradient, 0.3, 1.0).values()
    )
    assert least <= truth + 1e-9
    if name != "middle" and (k <= c or name == "tasks"):
      assert least == pytest.approx(truth, rel=2e-3, abs=1e-6)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("z", [1e-30, 1e-20, 1e30])
@pytest.mark.parametrize(
    "stage", [0.1, 5, plan.All()]
)
@pytest.mark.few(3)
def test_it_is_finite_for_any_noise(stage, z):
  release = release_of((50,), (stage,), "hospital", z)
  for steps in (1, 1000, 10**12):
    asked = dict(steps=steps, level="hospital", delta=1e-5)
    epsilon = accounting.guarantee(release, **asked).epsilon
    assert 0 <= accounting.lower_bound(release, **asked) <= epsilon


def test_a_pass_has_one_too():
  release = release_of((40,), (plan.RandomAllocation(8),), "hospital")
  for steps in (8, 24):
    epsilon = accounting.guarantee(
        release, steps=steps, level="hospital", delta=1e-5
    ).epsilon
    least = accounting.lower_bound(
        release, steps=steps, level="hospital", delta=1e-5
    )
    assert 0.9 * epsilon < least <= epsilon


def test_unknown_plans_have_zero_and_wrong_values_end_in_a_sentence():
  h = plans.tree("class image", 60, 20)
  release = plans.release(
      h,
      plans.sampling(5, 3, way=5, shot=1, query=2, form="independent", tasks=3),
      "episode",
  )
  asked = dict(steps=3, level="class")
  assert accounting.lower_bound(release, delta=1e-5, **asked) == 0
  with pytest.raises(plan.PlanError):
    accounting.lower_bound(release, delta=2.0, **asked)


# The whole range of parameters ------------------------------------------------
#
# Rates down to 1e-9, 10^7 steps, noise multipliers from 0.3 to 1000 and deltas
# down to 1e-15. Below lies what one test of the sum of all releases reveals, an
# exact statement about the run; above lies the Renyi accountant.


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
  upper, lower = (
      (with_unit, without) if direction == "remove" else (without, with_unit)
  )
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
    pytest.param(0.3, 30.0, 10**4, marks=pytest.mark.slow),
    pytest.param(0.05, 1000.0, 10**7, marks=pytest.mark.slow),
    (1.0, 1000.0, 10**7),
    (1.0, 0.3, 1000),
]


@pytest.mark.parametrize("direction", amplification.DIRECTIONS)
@pytest.mark.parametrize("delta", [1e-5, 1e-15])
@pytest.mark.parametrize("p,z,steps", CASES)
@pytest.mark.few(8)
def test_between_an_exact_lower_bound_and_renyi(p, z, steps, delta, direction):
  run = run_of(poisson(p, z), steps)
  at = base.Delta(delta)
  got = get_accountant("pld").answer(run, direction, at)
  above = get_accountant("rdp").answer(run, direction, at)
  below = revealed_by_the_sum(p, z, steps, delta, direction)
  assert math.isfinite(got) and math.isfinite(above)
  assert below * (1 - 1e-6) <= got
  assert got <= above * (1 + 1e-3)

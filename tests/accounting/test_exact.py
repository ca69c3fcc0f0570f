"""Ground truth: every sample of small hierarchies, against the bounds.

`tests.oracles.exact` turns a plan into the exact distributions of what
is released with and without a unit. Their divergences must stay under what the
accountant bounds, and reach it at the worst case.
"""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import special

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.guarantee import get_accountant
from episodic_dp.accounting.profiles import amplification
from tests import plans
from tests.accounting import enumerated
from tests.oracles import exact

LEVELS = ("alphabet", "character", "drawing")
EXAMPLE = [[4, 2, 3], [4, 5]]  # Example 3.1 of the paper.


# The example of the paper -----------------------------------------------------


@functools.cache
def example():
  h = plans.nested(LEVELS, EXAMPLE)
  p = plans.sampling(1, 1, 1)
  return h, p, exact.pair(h, p, 2, 4)  # drawing 4 is the first of two siblings


@pytest.mark.parametrize(
    "direction,epsilon,value",
    [
        ("remove", 0.5, 0.02527592),
        ("add", 0.5, 0.00487598),
        ("remove", 0.1, 0.04525778),
        ("add", 0.1, 0.03964402),
    ],
)
def test_worst_case_of_the_example_is_attained(direction, epsilon, value):
  h, p, drawn = example()

  def gradient(unit):
    # The sibling lies opposite; all else with the sibling (the worst case of
    # removal) or with the drawing itself (of addition).
    opposite = unit[1] == 5 or (unit[1] != 4 and direction == "remove")
    return -1.0 if opposite else 1.0

  truth = exact.divergences(drawn, 2, gradient, epsilon, 1.0)[direction]
  # Another drawing may have the larger bound; this one has q = 1/6, p = 1/2.
  kind = amplification.Amplification((0.5, 1 / 3), 0.5, (2.0, 2.0), 2.0)
  own = float(kind.divergence(np.asarray([epsilon]), direction)[0])
  assert truth == pytest.approx(value, abs=5e-9)
  assert own == pytest.approx(truth, abs=1e-9)
  units = accounting.unit_profiles(plans.release(h, p, "drawing"), "drawing")
  bound = enumerated.profile(units, np.asarray([epsilon]), direction)[0]
  assert truth <= bound + 1e-12


def test_two_steps_of_one_poisson_stage_are_composed_to_the_truth():
  h = plans.tree("record", 3)
  p = plans.sampling(0.2)
  (kind,) = accounting.unit_profiles(plans.release(h, p, "record"), "record")
  one_step = [
      exact.mixture(d, 0, lambda unit: float(unit[1] == 0))
      for d in exact.pair(h, p, 0, 0)
  ]
  run = (base.Phase((kind,), 2),)
  for direction in amplification.DIRECTIONS:
    pair = [exact.twice(part) for part in one_step]
    truth = exact.plane_hockey_stick(
        *(pair if direction == "remove" else pair[::-1]), math.exp(0.3), 1.0
    )
    bound = get_accountant("pld").answer(run, direction, base.Epsilon(0.3))
    assert truth == pytest.approx(bound, rel=1e-3)


def test_enumeration_draws_with_the_plan_rates():
  h, p, (drawn, _) = example()
  assert sum(weight for weight, _ in drawn) == pytest.approx(1)
  for k, level in enumerate(LEVELS):
    largest = max(
        sum(weight for weight, s in drawn if exact.holds(s, k, unit))
        for unit in range(h.num_units(k))
    )
    assert largest == pytest.approx(plan.inclusion_rate(h, p, level))


# One pass over the units ------------------------------------------------------


def test_a_pass_uses_every_unit_once():
  h = plans.nested("task example", [2, 3])
  stages = (plan.RandomAllocation(2), plan.FixedSize(1))
  drawn = exact.pass_samples(exact.tree(h), stages)
  assert sum(weight for weight, _ in drawn) == pytest.approx(1)
  for _, steps in drawn:
    used = sorted(unit[1] for step in steps for unit in step[2])
    assert used == [0, 1]
  assert len(drawn) == 4 * 2 * 3


def test_passes_are_refused_where_they_do_not_belong():
  h = plans.tree("task example", 30, 2)
  root = exact.tree(h)
  with pytest.raises(plan.PlanError, match="^1152921504606846976 different"):
    exact.pass_samples(root, (plan.RandomAllocation(2), plan.FixedSize(1)))
  with pytest.raises(plan.PlanError, match="makes no passes"):
    exact.pass_samples(root, (plan.Poisson(0.1), plan.FixedSize(1)))
  with pytest.raises(plan.PlanError, match="pass_samples"):
    list(exact.choices(plan.RandomAllocation(2), root[2]))


# The enumerator itself --------------------------------------------------------


def test_samples_are_counted_before_they_are_drawn():
  root = exact.tree(plans.nested(LEVELS, [[3, 1], [2]]))
  each = (plan.FixedSize(1), plan.FixedSize(2), plan.Poisson(0.3), plan.All())
  for stages in itertools.product(each, repeat=3):
    drawn = exact.samples(root, stages)
    distinct = {sample for _, sample in drawn}
    assert len(distinct) == len(drawn) == exact.num_samples(root, stages)
    assert sum(weight for weight, _ in drawn) == pytest.approx(1)


def test_too_many_samples_are_refused_with_their_number():
  h = plans.tree("task example", 30, 2)
  p = plans.sampling(15, 1)
  count = math.comb(30, 15) * 2**15
  with pytest.raises(plan.PlanError, match=f"^{count} different samples"):
    exact.pair(h, p, 1, 0)


def test_divergence_of_two_gaussians():
  # H_alpha(N(1) || N(0)) in closed form, and with a component split in two.
  for alpha in (0.4, 1.0, 3.0):
    for z in (0.5, 2.0):
      d, e = 1 / z, math.log(alpha)
      truth = special.ndtr(d / 2 - e / d) - alpha * special.ndtr(-d / 2 - e / d)
      one, zero = np.ones(1), np.zeros(1)
      for p in ((one, one), (np.ones(2), np.asarray([0.3, 0.7]))):
        got = exact.hockey_stick(p, (zero, one), alpha, z)
        assert got == pytest.approx(truth, abs=1e-13)



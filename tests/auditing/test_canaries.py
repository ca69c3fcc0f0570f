"""Real runs on worst-case neighbours: no claim is passed, most are reached."""

import dataclasses

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.auditing import attack
from episodic_dp.auditing import canaries
from episodic_dp.private import step as step_lib
from experiments.targets import audited_plans
from tests import plans

F = plan.FixedSize
CASES, LEVELS = audited_plans.CASES, audited_plans.LEVELS


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_claim_holds_and_much_of_it_is_seen(name):
  case = CASES[name]
  claimed, measured = audited_plans.measured(case, 100_000, seed=1)
  assert case.share * claimed < measured <= claimed


def test_without_a_unit_the_tree_is_smaller_by_it():
  hierarchy = plans.tree(LEVELS, 3, 2, 2)
  fewer = [canaries.without(hierarchy, k) for k in range(3)]
  assert fewer[0].child_counts(0).tolist() == [2]
  assert [h.num_leaves for h in fewer] == [8, 10, 11]
  assert fewer[1].child_counts(1).tolist() == [1, 2, 2]
  assert fewer[2].child_counts(2).tolist() == [1, 2, 2, 2, 2, 2]
  # What was all that its unit held leaves an empty unit.
  single = plans.tree(LEVELS, 3, 2, 1)
  assert [
      canaries.without(single, k).child_counts(2).tolist() for k in (1, 2)
  ] == [[1] * 5, [0, *[1] * 5]]
  lone = plans.tree("image", 1)
  with pytest.raises(plan.PlanError, match="give it two or more") as caught:
    canaries.without(lone, 0)
  assert "one image" in str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_a_miniature_has_the_guarantee_of_the_whole(name):
  release, level = CASES[name].parts
  small = canaries.miniature(release, level)
  found, expected = (
      accounting.unit_profiles(r, level) for r in (small, release)
  )
  assert found == expected
  assert small.hierarchy.num_leaves <= release.hierarchy.num_leaves


def test_a_ragged_tree_becomes_a_regular_one_of_the_unit_drawn_most():
  ragged = plan.Release(
      plans.nested(LEVELS, [[4, 2, 3], [4, 5]]),
      plans.sampling(F(1), F(1), F(1)),
      CASES["three stages"].mechanism,
  )
  small = canaries.miniature(ragged, "image")
  # One of two, of three and of two: 1/12. Others are drawn less often.
  assert small.hierarchy.sizes == (2, 3, 2) and small.plan == ragged.plan
  found, among = (
      set(accounting.unit_profiles(r, "image")) for r in (small, ragged)
  )
  assert found <= among


@pytest.mark.slow
def test_the_law_of_one_record_is_counted():
  release, level = CASES["three stages"].parts
  law = attack.count_law(canaries.worst_case(release, level))
  # One of four, of three and of four, the others pull the other way.
  np.testing.assert_allclose(law.sums, [-1.25, 1.25])
  np.testing.assert_allclose(law.present[1], 1 / 48, atol=2.5e-3)
  np.testing.assert_array_equal(law.absent, [1, 0])


@pytest.mark.parametrize("pass_steps", [1, 5])
def test_scores_are_ratios_of_likelihoods(pass_steps):
  """Under a pass one of its steps follows the law, and the others are 0."""
  law = attack.Law(
      np.asarray([0, 1.4]), np.asarray([0.8, 0.2]), np.asarray([1.0, 0]),
      pass_steps,
  )
  x = np.random.default_rng(0).standard_normal((2, 10))
  each = (0.8 + 0.2 * np.exp(1.4 * x - 1.4**2 / 2)).reshape(2, -1, pass_steps)
  found = attack.log_ratio(x, law)
  expected = np.cumsum(np.log(each.mean(2)), 1)
  np.testing.assert_allclose(found[:, pass_steps - 1 :: pass_steps], expected)
  if pass_steps == 5:
    np.testing.assert_allclose(found[:, 4:9], found[:, 4:5].repeat(5, 1))
    assert (found[:, :4] == 0).all()


def test_a_release_is_read_in_units_of_its_noise():
  release, _ = CASES["dp-sgd"].parts
  assert step_lib.expected_clip_units(release) == pytest.approx(4)
  means = np.asarray([[[0.3], [-0.2]]])
  found = attack.on_line(
      attack.Releases(means, np.ones((1, 3, 1))), release.mechanism, 4.0
  )
  np.testing.assert_allclose(found, 4 * means[..., 0] / 0.8)


@pytest.mark.parametrize(
    "change,part",
    [
        (dict(levels=LEVELS, sizes=(4, 2, 4), level="class"),
         "cannot be audited by removal"),
        (dict(mechanism=audited_plans.per_task(0.0)), "nothing is claimed"),
        (dict(mechanism=plan.Mechanism(
            clip_unit="class", noise_multiplier=1.0)), "no proof covers"),
    ],
)
def test_what_cannot_be_audited_says_why(change, part):
  case = dataclasses.replace(CASES["poisson participant"], **change)
  with pytest.raises(ValueError, match=part) as caught:
    canaries.worst_case(*case.parts)
  assert "\n" not in str(caught.value)


def test_copies_are_refused():
  copied = plans.tree(LEVELS, 4, 4, 4, copies=True, most_copies={"class": 2})
  release = plan.Release(
      copied, plan.SamplingPlan(
          audited_plans.POISSON, episode=audited_plans.UNIT
      ), audited_plans.per_task(1.0)
  )
  with pytest.raises(plan.PlanError, match="recurs in several") as caught:
    canaries.worst_case(release, "class")
  assert "audit level 'participant'" in str(caught.value)

"""Clip units counted along paths, against enumeration and by known numbers."""

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import distances
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from tests.oracles import exact
from tests.oracles import worst_case

LEVELS = ("hospital", "patient", "record")
ALL, ONE = plan.All(), plan.FixedSize(1)


def release(hierarchy, stages, clip, z=1.0):
  return plan.Release(
      hierarchy,
      plan.SamplingPlan(stages, allow_short_units=True),
      plan.Mechanism(clip_unit=clip, noise_multiplier=z),
  )


def test_fixed_size_counts_the_largest_children():
  h = plan.Hierarchy.from_sizes(
      [[[1, 1], [1], [1, 1, 1]], [[1], [1]]],
      levels=("region", "hospital", "patient", "record"),
  )
  p = plan.SamplingPlan(
      (plan.All(), plan.FixedSize(2), plan.All(), plan.All())
  )
  clip = h.level_index("patient")
  counts = [
      distances.clip_units_below(h, p, clip, k).tolist() for k in range(4)
  ]
  assert counts == [[2 + 3, 2], [2, 1, 3, 1, 1], [1] * 8, [1] * 8]


@pytest.mark.parametrize(
    "classes,way,touched", [(1, 5, 1), (5, 5, 1), (10, 5, 2), (3, 2, 2),
                            (2, 3, 2), (4, 3, 2), (7, 3, 3), (5, 10, 1)]
)
def test_tasks_touched_by_a_block_of_classes(classes, way, touched):
  blocks = np.arange(classes * way * 3) // classes
  tasks = np.arange(classes * way * 3) // way
  counts = [len(set(tasks[blocks == b])) for b in range(3 * way)]
  assert max(counts) == touched
  assert distances.tasks_touched(classes, way) == touched


def test_a_unit_is_exchanged_for_the_largest_of_the_others():
  h = plan.Hierarchy.from_sizes([[1], [1, 1, 1, 1, 1]], levels=LEVELS)
  fixed = release(h, (ONE, ALL, ALL), "patient")
  (kind,) = accounting.unit_profiles(fixed, "hospital")
  assert kind.unit_sensitivity == 1 + 5
  for kind in accounting.unit_profiles(fixed, "record"):
    assert kind.outer_distances[0] == 1 + 5
  poisson = release(h, (plan.Poisson(0.5), ALL, ALL), "patient")
  (kind,) = accounting.unit_profiles(poisson, "hospital")
  assert kind.unit_sensitivity == 5
  found = distances.paths(poisson, 2)
  assert found.own[:, 0].tolist() == [1, 5]
  assert found.others[:, 0].tolist() == [5, 1]


# Cases that were above the truth: tiny ones, where the largest divergence over
# all units of a level is the bound, and each with a number of its own.

LOOSE = {
    "poisson siblings": (
        [[2], [3, 3]], (plan.Poisson(0.3), ALL, ONE), "patient", "record"
    ),
    "siblings of other sizes": (
        [[1, 1, 1], [1], [1]], (ONE, ALL, ALL), "patient", "hospital"
    ),
    "one of one": ([[3], [2]], (ALL, ONE, ALL), "patient", "patient"),
    "short units": (
        [[1, 1], [1, 1]], (plan.FixedSize(3), ALL, ALL), "patient", "hospital"
    ),
    "empty classes": (
        [[2, 2], [2]],
        (plan.Poisson(0.3), plan.Poisson(0.5), plan.Poisson(0.1)),
        "hospital",
        "patient",
    ),
    "all classes, some empty": (
        [[2, 2], [2]], (ONE, ALL, plan.Poisson(0.1)), "hospital", "patient"
    ),
}


@pytest.mark.parametrize("name", LOOSE)
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_the_bound_is_the_truth(name, epsilon):
  sizes, stages, clip, level = LOOSE[name]
  h = plan.Hierarchy.from_sizes(sizes, levels=LEVELS)
  r = release(h, stages, clip, 1.5)
  k = h.level_index(level)
  units = accounting.unit_profiles(r, level)
  reached = dict.fromkeys(amplification.DIRECTIONS, 0.0)
  for unit in range(h.num_units(k)):
    drawn = exact.pair(h, r.plan, k, unit, clip=r.clip_level)
    for gradient in worst_case.gradients(h, k, unit):
      for direction, found in exact.divergences(
          drawn, r.clip_level, gradient, epsilon, 1.5
      ).items():
        reached[direction] = max(reached[direction], found)
  for direction in amplification.DIRECTIONS:
    bound = unit_profile.profile(units, np.asarray([epsilon]), direction)[0]
    assert reached[direction] == pytest.approx(bound, abs=1e-9), direction


def test_an_exchanged_unit_shows_also_where_it_is_empty():
  # One of two classes, each empty as a rule: the other one's images are missed.
  h = plan.Hierarchy.from_sizes([[2, 2]], levels=LEVELS)
  r = release(h, (ALL, ONE, plan.Poisson(0.3)), "hospital")
  drawn = exact.pair(h, r.plan, 1, 0, clip=0)

  def gradient(node):
    return 1.0 if not node[2] or exact.holds(node, 1, 0) else -1.0

  truth = exact.divergences(drawn, 0, gradient, 0.1, 1.0)["add"]
  (kind,) = accounting.unit_profiles(r, "patient")
  at = np.asarray([0.1])
  assert kind.rate == 0.5 and truth <= kind.divergence(at, "add")[0]
  filled = 1 - 0.7**2
  rarer = amplification.Amplification((1.0,), 0.5 * filled, (2.0,), 2.0)
  assert truth > 1.3 * rarer.divergence(at, "add")[0]

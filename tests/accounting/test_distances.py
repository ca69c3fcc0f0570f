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


def test_paths_are_those_of_a_plain_loop():
  rng = np.random.default_rng(5)
  for _ in range(40):
    sizes = [
        [int(n) for n in rng.integers(0, 4, rng.integers(0, 4))]
        for _ in range(rng.integers(1, 5))
    ]
    if not sum(map(sum, sizes)):
      continue
    h = plan.Hierarchy.from_sizes(sizes, levels=LEVELS)
    n = int(rng.integers(1, 4))
    r = release(h, (ONE, plan.FixedSize(n), plan.Poisson(0.2)), "record")
    below = [
        sum(sorted(patients, reverse=True)[:n]) for patients in sizes
    ]
    wanted = set()
    for i, patients in enumerate(sizes):
      far = max([b for j, b in enumerate(below) if j != i], default=0)
      for j, own in enumerate(patients):
        other = max([p for m, p in enumerate(patients) if m != j], default=0)
        filled = 1 - 0.8**own if own else 1.0
        wanted.add((
            len(sizes), len(patients), below[i], own, far, other,
            round(filled, 12),
        ))
    found = distances.paths(r, 1)
    got = [
        (*map(int, (*s, *own, *others)), round(float(filled), 12))
        for s, own, others, filled in zip(*found)
    ]
    assert len(set(got)) == len(got)
    assert set(got) == wanted


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


@pytest.mark.parametrize(
    "sizes,stages,clip,level,z,steps,delta,epsilon",
    [
        # One hospital moves 50 patients, and its records are drawn seldom.
        (
            [[1]] * 20 + [[100] * 50],
            (plan.Poisson(0.01), ALL, ONE),
            "patient", "record", 1.0, 200, 1e-6, 4.65,
        ),
        ([50] + [2] * 9, (ONE, ALL), "record", "user", 200.0, 50, 1e-5, 0.717),
        (10, (plan.FixedSize(10),), "record", "record", 8.0, 100, 1e-5, 5.68),
        (8, (plan.FixedSize(10),), "record", "record", 8.0, 100, 1e-5, 5.68),
        (
            [[5] * 5] * 100,
            (plan.Poisson(0.05), plan.Poisson(0.5), plan.Poisson(0.05)),
            "hospital", "patient", 1.0, 300, 1e-5, 0.805,
        ),
    ],
)
def test_reported_numbers(sizes, stages, clip, level, z, steps, delta, epsilon):
  levels = {1: ("record",), 2: ("user", "record"), 3: LEVELS}[len(stages)]
  h = plan.Hierarchy.from_sizes(sizes, levels=levels)
  found = accounting.guarantee(
      release(h, stages, clip, z), steps=steps, level=level, delta=delta
  ).epsilon
  assert found == pytest.approx(epsilon, rel=3e-3)


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
  rarer = accounting.Amplification((1.0,), 0.5 * filled, (2.0,), 2.0)
  assert truth > 1.3 * rarer.divergence(at, "add")[0]


def test_what_is_not_seen_of_empty_units_is_assumed():
  h = plan.Hierarchy.from_sizes([[2, 2]], levels=LEVELS)
  r = release(h, (ALL, ALL, plan.Poisson(0.3)), "hospital")
  for level in LEVELS:
    found = accounting.guarantee(r, steps=1, level=level, delta=1e-5)
    assert (level == "patient") == any(
        "drawn without an example" in text for text in found.assumptions
    )

"""Trees of labels, enumerated: units that cross, and units declared.

A patient with images of several diagnoses, in tasks of diagnoses: every draw of
tiny hierarchies is enumerated, with the patient and without it.

What a guarantee compares is what a loader builds from the two data sets. Where
the units are declared, a unit whose last record leaves stays, as the proof has
it; where they are read off the records, it leaves too, and the claim is false.
"""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import sensitivity
from tests import plans
from tests.accounting import enumerated
from tests.accounting import random_plans
from tests.accounting import random_tasks
from tests.oracles import exact
from tests.oracles import worst_case
from tests.refusals import assert_refused

LEVELS = ("diagnosis", "patient", "image")
EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0)


def hierarchy(patients):
  """One image each; `patients` are the names within each diagnosis."""
  diagnoses = np.repeat(np.arange(len(patients)), [len(p) for p in patients])
  return plan.Hierarchy.from_labels(
      {"diagnosis": diagnoses, "patient": np.concatenate(patients)},
      leaf="image",
      crossing="patient",
  )


def release(tree, diagnoses, patients, *, way, form, tasks=None, z=1.0):
  return plans.release(
      tree,
      plans.sampling(
          diagnoses, patients, 1, way=way,
          shot=patients - 1, query=1, form=form, tasks=tasks,
          classes="diagnosis",
      ),
      "episode", z,
  )


def draws(tree, r, k, units):
  """The draws of a task's (or a step's) tree, with the units and without."""
  whole = exact.tree(tree)
  smaller = whole
  for unit in units:
    smaller = exact.without(smaller, k, int(unit))
  return [exact.samples(node, r.plan.stages) for node in (whole, smaller)]


def drawn_patients(node, names):
  """(diagnosis, patient) of everything in a drawn tree."""
  return frozenset(
      (d[1], int(names[p[1]])) for d in node[2] for p in d[2]
  )


def groups(items, way):
  """All ways to cut drawn diagnoses into tasks."""
  if not items:
    yield ()
    return
  if len(items) < way:  # A task that is not filled, which may still speak.
    yield (items,)
    return
  for others in itertools.combinations(items[1:], way - 1):
    task = (items[0], *others)
    rest = tuple(i for i in items if i not in task)
    for more in groups(rest, way):
      yield (task, *more)


def outputs(drawn, names, way, tasks, gradient):
  """The mixture of sums of a step: `tasks` draws, or one cut into tasks."""

  def sums():
    for probability, node in drawn:
      cuts = list(groups(node[2], way))
      for cut in cuts:
        yield sum(
            gradient(drawn_patients((-1, 0, task), names)) for task in cut
        ), probability / len(cuts)

  return random_tasks.convolved([random_tasks.summed(sums())] * tasks)


def gradients(k, name, rng):
  """Yield the worst gradients and random ones."""
  def holds(task):
    return any(drawn[k] == name for drawn in task)

  yield lambda task: 1.0 if holds(task) else -1.0
  yield lambda task: -1.0 if holds(task) else 1.0
  for _ in range(3):
    random = random_plans.random_gradient(rng)
    # Whole numbers, so that few sums are different.
    yield lambda task, random=random: round(random(task))
    yield lambda task, random=random: (
        1.0 if holds(task) else math.copysign(1.0, random(task))
    )


# Patients within each diagnosis; patient 0 is the one that crosses.
POOLS = (
    ((0, 1, 2), (0, 3, 4), (5, 6, 7)),
    ((0, 1, 2, 3), (0, 4, 5), (0, 6, 7, 8)),
    ((0, 1, 2), (0, 3, 4), (5, 6, 7), (8, 9, 10)),
)
CASES = [
    (pool, diagnoses, patients, way, form, tasks)
    for pool in POOLS
    for diagnoses, patients, way, form, tasks in (
        (1, 2, 1, "independent", 1),
        (2, 2, 2, "independent", 1),
        (2, 2, 2, "independent", 2),
        (1, 2, 1, "independent", 3),
        (3, 2, 3, "independent", 2),
        (2, 3, 2, "independent", 2),
        (2, 2, 1, "disjoint", None),
        (2, 2, 2, "disjoint", None),
        (3, 2, 1, "disjoint", None),
    )
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.few(9)
def test_no_enumerated_step_is_above_the_bound(case):
  pool, diagnoses, patients, way, form, tasks = case
  tree = hierarchy(pool)
  for z in (0.7, 2.0):
    r = release(
        tree, diagnoses, patients, way=way, form=form, tasks=tasks, z=z
    )
    units = sensitivity.unit_profiles(r, "patient")
    names, reached = tree.names[1], []
    drawn = draws(tree, r, 1, np.flatnonzero(names == 0))
    for gradient in gradients(1, 0, np.random.default_rng(7)):
      pair = [outputs(d, names, way, tasks or 1, gradient) for d in drawn]
      reached += enumerated.check_bounds(pair, units, z, EPSILONS).values()
    # One task of diagnoses of one size: the bound is the truth of the worst
    # gradients. Otherwise (the largest rate is taken for all): close.
    exactly = tasks == 1 and len(set(map(len, pool))) == 1
    assert max(reached) > 1 / (1.001 if exactly else 1.5)


def test_what_a_crossing_patient_costs_between_one_part_and_the_sum_of_parts():
  """More than one of its parts alone, and less than all parts in one place."""
  pool = [tuple(range(20)), (0, *range(20, 39)), tuple(range(40, 60))]
  crossing = release(hierarchy(pool), 2, 2, way=2, form="independent", tasks=4)
  apart = plans.tree(LEVELS, 3, 20, 1)
  tree = crossing.replace(hierarchy=apart)
  asked = dict(steps=100, delta=1e-5)
  patient = accounting.guarantee(crossing, level="patient", **asked)
  part = accounting.guarantee(tree, level="patient", **asked)
  assert part.epsilon < patient.epsilon < 2.6 * part.epsilon
  # One image is in one part: crossing changes nothing for it.
  for level in ("diagnosis", "image"):
    assert accounting.guarantee(
        crossing, level=level, **asked
    ).epsilon == accounting.guarantee(tree, level=level, **asked).epsilon
  assert "at most 2" in " ".join(patient.assumptions)


@pytest.mark.parametrize(
    "episode, message",
    [
        (
            dict(form="disjoint", way=2, classes="patient"),
            "use classes='diagnosis', or form='independent'",
        ),
        (None, "put 'patient' above 'diagnosis'"),
    ],
)
def test_what_no_proof_covers_is_refused_with_the_nearest_plan(
    episode, message
):
  tree = hierarchy([(0, 1, 2), (0, 3, 4)])
  if episode is None:
    r = plans.release(tree, plans.sampling(1, 2, 1), "image")
  else:
    tree = plan.Hierarchy.from_labels(
        {"diagnosis": [0] * 6 + [1] * 6, "patient": [0, 0, 1, 1, 2, 2] * 2},
        leaf="image", crossing="patient",
    )
    p = plans.sampling(1, 2, 2, shot=1, query=1, **episode)
    r = plans.release(tree, p, "episode")
  assert_refused(plan.UnsoundPlanError, message, r.check_level, "patient")
  r.check_level("image")


def test_a_unit_in_several_places_is_counted_once():
  tree = hierarchy([(0, 1, 2), (0, 3, 4)])
  assert [tree.distinct(k) for k in range(3)] == [2, 5, 6]
  nameless = dataclasses.replace(tree, names=None)
  assert nameless.distinct(1) == 6
  assert str(nameless) == (
      "diagnosis (2) > patient (6 places, up to 2 each) > image (6)"
  )


# Declared units ---------------------------------------------------------------


BOTH = ("remove", "add")


def mixture(hierarchy, rows, stages, clip, gradient):
  """The sums of one step on a tree of some rows of the whole data.

  Args:
    hierarchy: of these rows.
    rows: their numbers in the whole data.
    stages: of the plan.
    clip: the clip level.
    gradient: the drawn rows of a clip unit, rising -> a number in [-1, 1].
  """
  order = hierarchy.leaf_rows
  order = np.arange(len(rows)) if order is None else order

  def of_unit(node):
    leaves = exact.clip_units(node, hierarchy.depth - 1)
    return gradient(tuple(sorted(int(rows[order[leaf[1]]]) for leaf in leaves)))

  drawn = exact.samples(exact.tree(hierarchy), stages)
  return exact.mixture(drawn, clip, of_unit)


def both_ways(sums, epsilon, z):
  """The divergences of removing and of adding, of the sums of two trees."""
  alpha = math.exp(epsilon)
  return [
      exact.hockey_stick(one, other, alpha, z)
      for one, other in (sums, sums[::-1])
  ]


def claimed(hierarchy, stages, clip, level, epsilon, z):
  release = plans.release(
      hierarchy, plan.SamplingPlan(stages, allow_short_units=True),
      hierarchy.levels[clip], z,
  )
  units = accounting.unit_profiles(release, level)
  at = np.asarray([epsilon])
  return {d: float(enumerated.profile(units, at, d)[0]) for d in BOTH}


def test_the_counterexample():
  """Class A has one record and class B four; the record of A leaves."""
  labels = np.asarray(list("ABBBB"))
  stages, every = (plan.FixedSize(1), plan.All()), np.arange(5)

  def truth(units):
    trees = [
        plan.Hierarchy.from_labels({"class": labels[kept]}, units=units)
        for kept in (every, every[1:])
    ]
    bound = claimed(trees[0], stages, 1, "example", 2.0, 2.0)
    assert max(bound.values()) == pytest.approx(4.719e-6, rel=1e-3)
    sums = [
        mixture(t, kept, stages, 1, lambda rows: -1.0 if rows == (0,) else 1.0)
        for t, kept in zip(trees, (every, every[1:]))
    ]
    return max(both_ways(sums, 2.0, 2.0)), max(bound.values())

  read_off, bound = truth(None)
  assert read_off == pytest.approx(0.216, abs=5e-4)
  declared, bound = truth(["A", "B"])
  assert declared == pytest.approx(bound, rel=1e-6)


STAGES = (plan.FixedSize(1), plan.FixedSize(2), plan.Poisson(0.4), plan.All())


@pytest.mark.parametrize("seed", range(80))
def test_random_trees_with_empty_units(seed):
  """Remove one unit of any level from the data and from the list."""
  rng = np.random.default_rng(seed)
  rows, depth = int(rng.integers(2, 6)), int(rng.integers(1, 3))
  table = rng.integers(0, 3, (rows, depth))
  units = [tuple(row) for row in table.tolist()]
  units += [tuple(rng.integers(0, 4, depth).tolist()) for _ in range(2)]
  if depth == 2:
    units.append((int(rng.integers(0, 5)),))  # Perhaps with nothing at all.
  stages = tuple(STAGES[i] for i in rng.integers(0, 4, depth + 1))
  clip, level = (int(i) for i in rng.integers(0, depth + 1, 2))
  epsilon, z = float(rng.uniform(0, 1.5)), float(rng.uniform(0.5, 2))
  values = {}

  def gradient(drawn):
    return values.setdefault(drawn, float(rng.choice([-1.0, 1.0, 0.5])))

  def built(kept, units):
    labels = {f"level{k}": table[kept, k] for k in range(depth)}
    return plan.Hierarchy.from_labels(labels, units=units)

  every = np.arange(rows)
  whole = built(every, units)
  order = every if whole.leaf_rows is None else whole.leaf_rows
  unit = int(rng.integers(whole.num_units(level)))
  if level == depth:
    kept, fewer = np.delete(every, order[unit]), units
  else:  # With all that is below it; what is above it stays.
    path = tuple(
        whole.names[k][worst_case.ancestor(whole, level, unit, k)].item()
        for k in range(level + 1)
    )
    kept = every[(table[:, : level + 1] != path).any(axis=1)]
    fewer = [u for u in units if u[: level + 1] != path] + [path[:-1]] * level
  if not kept.size:
    return  # No data are left to build a tree of.
  sums = [
      mixture(tree, of, stages, clip, gradient)
      for tree, of in ((whole, every), (built(kept, fewer), kept))
  ]

  def of_node(node):
    leaves = exact.clip_units(node, depth)
    return gradient(tuple(sorted(int(order[n[1]]) for n in leaves)))

  # The neighbour that is built is the one that the proof has.
  described = plan.SamplingPlan(stages, allow_short_units=True)
  proved = exact.divergences(
      exact.pair(whole, described, level, unit), clip, of_node, epsilon, z
  )
  bound = claimed(whole, stages, clip, whole.levels[level], epsilon, z)
  truth = dict(zip(BOTH, both_ways(sums, epsilon, z)))
  for direction in BOTH:
    assert truth[direction] == pytest.approx(proved[direction], abs=1e-12)
    assert truth[direction] <= bound[direction] + 1e-9

"""Units of the second level that several primary units hold in parts.

A patient with images of several diagnoses, in tasks of diagnoses: every draw of
tiny hierarchies is enumerated, with the patient and without it.
"""

import itertools
import math

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import sensitivity
from tests.oracles import exact

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
  return plan.Release(
      tree,
      plan.SamplingPlan(
          (
              plan.FixedSize(diagnoses),
              plan.FixedSize(patients),
              plan.FixedSize(1),
          ),
          plan.Episode(
              way=way,
              shot=patients - 1,
              query=1,
              form=form,
              tasks=tasks,
              classes="diagnosis",
          ),
      ),
      plan.Mechanism(clip_unit="episode", noise_multiplier=z),
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
  single = {}
  for probability, node in drawn:
    cuts = list(groups(node[2], way))
    for cut in cuts:
      total = sum(
          gradient(drawn_patients((-1, 0, task), names)) for task in cut
      )
      single[total] = single.get(total, 0.0) + probability / len(cuts)
  means, weights = {0.0: 1.0}, None
  for _ in range(tasks):
    following = {}
    for (a, p), (b, q) in itertools.product(means.items(), single.items()):
      following[a + b] = following.get(a + b, 0.0) + p * q
    means = following
  weights = np.asarray(list(means.values()))
  return np.asarray(list(means)), weights


def gradients(k, name, rng):
  """Yield the worst gradients and random ones."""
  def holds(task):
    return any(drawn[k] == name for drawn in task)

  yield lambda task: 1.0 if holds(task) else -1.0
  yield lambda task: -1.0 if holds(task) else 1.0
  for _ in range(3):
    values = {}

    def drawn(task, values=values):
      return values.setdefault(task, float(rng.choice([-1.0, 0.0, 1.0])))

    yield drawn
    yield lambda task, values=values: (
        1.0 if holds(task)
        else values.setdefault(task, float(rng.choice([-1.0, 1.0])))
    )


def worst(r, tree, k, name, way, tasks, seed):
  """Yield (direction, epsilon, exact delta) over many gradients."""
  units = np.flatnonzero(tree.names[k] == name)
  with_it, without_it = draws(tree, r, k, units)
  names, z = tree.names[1], r.mechanism.noise_multiplier
  for gradient in gradients(k, name, np.random.default_rng(seed)):
    larger = outputs(with_it, names, way, tasks, gradient)
    smaller = outputs(without_it, names, way, tasks, gradient)
    for epsilon in EPSILONS:
      alpha = math.exp(epsilon)
      yield "remove", epsilon, exact.hockey_stick(larger, smaller, alpha, z)
      yield "add", epsilon, exact.hockey_stick(smaller, larger, alpha, z)


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
def test_no_enumerated_step_is_above_the_bound(case):
  pool, diagnoses, patients, way, form, tasks = case
  tree = hierarchy(pool)
  for z in (0.7, 2.0):
    r = release(
        tree, diagnoses, patients, way=way, form=form, tasks=tasks, z=z
    )
    (unit,) = sensitivity.unit_profiles(r, "patient")
    tightest = math.inf
    for direction, epsilon, delta in worst(
        r, tree, 1, 0, way, tasks or 1, 7
    ):
      (bound,) = unit.divergence(np.asarray([epsilon]), direction)
      assert delta <= bound * (1 + 1e-7) + 1e-12, (direction, epsilon)
      if delta > 1e-3:
        tightest = min(tightest, bound / delta)
    # One task of diagnoses of one size: the bound is the truth of the worst
    # gradients. Otherwise (the largest rate is taken for all): close.
    exactly = tasks == 1 and len(set(map(len, pool))) == 1
    assert tightest < (1.001 if exactly else 1.5)


def test_what_a_crossing_patient_costs_between_one_part_and_the_sum_of_parts():
  """More than one of its parts alone, and less than all parts in one place."""
  pool = [tuple(range(20)), (0, *range(20, 39)), tuple(range(40, 60))]
  crossing = release(hierarchy(pool), 2, 2, way=2, form="independent", tasks=4)
  apart = plan.Hierarchy.regular((3, 20, 1), levels=LEVELS)
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
  stages = (plan.FixedSize(1), plan.FixedSize(2), plan.FixedSize(1))
  if episode is None:
    p = plan.SamplingPlan(stages)
    m = plan.Mechanism(clip_unit="image", noise_multiplier=1.0)
  else:
    tree = plan.Hierarchy.from_labels(
        {"diagnosis": [0] * 6 + [1] * 6, "patient": [0, 0, 1, 1, 2, 2] * 2},
        leaf="image", crossing="patient",
    )
    p = plan.SamplingPlan(
        (*stages[:2], plan.FixedSize(2)),
        plan.Episode(shot=1, query=1, **episode),
    )
    m = plan.Mechanism(clip_unit="episode", noise_multiplier=1.0)
  r = plan.Release(tree, p, m)
  with pytest.raises(plan.UnsoundPlanError, match=message):
    r.check_level("patient")
  r.check_level("image")

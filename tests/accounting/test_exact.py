"""Ground truth: every sample of small hierarchies, against the bounds.

`tests.oracles.exact` turns a plan into the exact distributions of what
is released with and without a unit. Their divergences must stay under what the
accountant bounds, and reach it at the worst case.
"""

import dataclasses
import functools
import itertools
import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
from scipy import special

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.guarantee import get_accountant
from episodic_dp.accounting.profiles import amplification
from tests.accounting import enumerated
from tests.accounting import random_tasks
from tests.oracles import exact
from tests.oracles import worst_case

LEVELS = ("alphabet", "character", "drawing")
EXAMPLE = [[4, 2, 3], [4, 5]]  # Example 3.1 of the paper.


def bounds(hierarchy, sampling_plan, mechanism, level, epsilon):
  unit_profiles = accounting.unit_profiles(
    plan.Release(hierarchy, sampling_plan, mechanism), level
  )
  at = np.asarray([epsilon])
  return {
      d: float(enumerated.profile(unit_profiles, at, d)[0])
      for d in amplification.DIRECTIONS
  }


def check_below(truth, bound, *case):
  for direction in amplification.DIRECTIONS:
    assert truth[direction] <= bound[direction] + 1e-9, (direction, *case)


# The example of the paper -----------------------------------------------------


@functools.cache
def example():
  h = plan.Hierarchy.from_sizes(EXAMPLE, levels=LEVELS)
  p = plan.SamplingPlan((plan.FixedSize(1),) * 3)
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
  m = plan.Mechanism(clip_unit="drawing", noise_multiplier=1.0)

  def gradient(unit):
    # The sibling lies opposite; all else with the sibling (the worst case of
    # removal) or with the drawing itself (of addition).
    if unit[1] == 4:
      return 1.0
    return -1.0 if unit[1] == 5 or direction == "remove" else 1.0

  truth = exact.divergences(drawn, 2, gradient, epsilon, 1.0)[direction]
  # Another drawing may have the larger bound; this one has q = 1/6, p = 1/2.
  kind = amplification.Amplification((0.5, 1 / 3), 0.5, (2.0, 2.0), 2.0)
  own = float(kind.divergence(np.asarray([epsilon]), direction)[0])
  assert truth == pytest.approx(value, abs=5e-9)
  assert own == pytest.approx(truth, abs=1e-9)
  assert truth <= bounds(h, p, m, "drawing", epsilon)[direction] + 1e-12


@pytest.mark.parametrize("name", ["pld", "rdp", "moments"])
def test_two_steps_lie_under_what_is_composed(name):
  h, _, drawn = example()
  kind = amplification.Amplification((0.5, 1 / 3), 0.5, (2.0, 2.0), 2.0)
  reached = 0.0
  for gradient in worst_case.gradients(h, 2, 4):
    one_step = [exact.mixture(d, 2, gradient) for d in drawn]
    for direction, epsilon in (("remove", 0.4), ("add", 0.2)):
      truth, bound = two_steps(one_step, kind, direction, epsilon, name)
      assert truth <= bound * (1 + 1e-3)
      reached = max(reached, truth / bound)
  # No one data set is the worst above and below alpha = 1.
  assert reached > (0.96 if name == "pld" else 0.0)


def test_two_steps_of_one_poisson_stage_are_composed_to_the_truth():
  h = plan.Hierarchy.regular((3,), levels=("record",))
  p = plan.SamplingPlan((plan.Poisson(0.2),))
  m = plan.Mechanism(clip_unit="record", noise_multiplier=1.0)
  (kind,) = accounting.unit_profiles(plan.Release(h, p, m), "record")
  one_step = [
      exact.mixture(d, 0, lambda unit: float(unit[1] == 0))
      for d in exact.pair(h, p, 0, 0)
  ]
  for direction in amplification.DIRECTIONS:
    truth, bound = two_steps(one_step, kind, direction, 0.3, "pld")
    assert truth == pytest.approx(bound, rel=1e-3)


def two_steps(one_step, kind, direction, epsilon, accountant):
  """Exact and bounded delta of two equal steps, as sums in the plane."""
  pair = [exact.twice(part) for part in one_step]
  truth = exact.plane_hockey_stick(
      *(pair if direction == "remove" else pair[::-1]), math.exp(epsilon), 1.0
  )
  run = (base.Phase((kind,), 2),)
  return truth, get_accountant(accountant).delta(run, direction, epsilon)


def test_printed_theorem_is_violated():
  _, _, drawn = example()
  truth = exact.divergences(
      drawn, 2, lambda unit: 1.0 if unit[1] == 4 else -1.0, 0.5, 1.0
  )["remove"]
  printed = accounting.theorem3_as_printed(1 / 12, 0.5, 1.0)
  assert truth == pytest.approx(0.0252759, abs=1e-7)
  assert printed == pytest.approx(0.00117865, abs=1e-8)
  assert truth > 20 * printed


def test_enumeration_draws_with_the_plan_rates():
  h, p, (drawn, _) = example()
  assert sum(weight for weight, _ in drawn) == pytest.approx(1)
  for k, level in enumerate(LEVELS):
    largest = max(
        sum(weight for weight, s in drawn if exact.holds(s, k, unit))
        for unit in range(h.num_units(k))
    )
    assert largest == pytest.approx(plan.inclusion_rate(h, p, level))


# Two distances ----------------------------------------------------------------


@pytest.mark.parametrize("z", [0.7, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.1, 0.5])
def test_poisson_tasks_attain_both_directions(epsilon, z):
  h = plan.Hierarchy.from_sizes([3, 2], levels=("participant", "image"))
  p = plan.SamplingPlan((plan.Poisson(0.3), plan.Poisson(0.4)))
  m = plan.Mechanism(clip_unit="participant", noise_multiplier=z)
  drawn = exact.pair(h, p, 1, 0)

  def gradient(unit):  # absent: 0; with the image: +1; without it: -1
    if unit[1] != 0:
      return 0.0
    return 1.0 if exact.holds(unit, 1, 0) else -1.0

  truth = exact.divergences(drawn, 0, gradient, epsilon, z)
  bound = bounds(h, p, m, "image", epsilon)
  for direction in amplification.DIRECTIONS:
    assert truth[direction] == pytest.approx(bound[direction], abs=1e-9)


PLANS = {
    "fixed": (plan.FixedSize(1), plan.FixedSize(2), plan.FixedSize(1)),
    "poisson tasks": (plan.Poisson(0.3), plan.All(), plan.Poisson(0.5)),
    "poisson, fixed": (plan.Poisson(0.4), plan.FixedSize(1), plan.All()),
    "fixed, poisson": (plan.FixedSize(1), plan.Poisson(0.5), plan.FixedSize(1)),
    "all, poisson": (plan.All(), plan.Poisson(0.2), plan.FixedSize(2)),
}


@pytest.mark.parametrize("clip", [0, 1, 2])
@pytest.mark.parametrize(
    "sizes,name",
    [
        *(([[2, 1], [1, 3]], name) for name in PLANS),
        # Poisson leaves of All characters would give too many draws here.
        *(
            ([[2, 2], [2, 2], [2, 2]], name)
            for name in PLANS
            if name != "poisson tasks"
        ),
    ],
)
def test_bound_holds_for_every_unit_of_ragged_and_mixed_plans(
    sizes, name, clip
):
  h = plan.Hierarchy.from_sizes(sizes, levels=LEVELS)
  p = plan.SamplingPlan(PLANS[name], allow_short_units=True)
  rng = np.random.default_rng(clip)
  root = exact.tree(h)
  everything = exact.samples(root, p.stages, clip=clip)
  for k, level in enumerate(LEVELS):
    z = [0.8, 2.0][k % 2]
    m = plan.Mechanism(clip_unit=LEVELS[clip], noise_multiplier=z)
    for unit in rng.permutation(h.num_units(k))[:2]:
      smaller = exact.without(root, k, int(unit))
      drawn = (everything, exact.samples(smaller, p.stages, clip=clip))
      for gradient in gradients(rng, h, k, int(unit)):
        for epsilon in (0.05, 0.7):
          truth = exact.divergences(drawn, clip, gradient, epsilon, z)
          bound = bounds(h, p, m, level, epsilon)
          check_below(truth, bound, level, unit, epsilon)


def gradients(rng, hierarchy, level, unit):
  """The worst ones, and random ones that depend on all that was drawn."""
  yield from worst_case.gradients(hierarchy, level, unit)
  table: dict = {}
  yield lambda node: table.setdefault(node, float(rng.uniform(-1, 1)))


@pytest.mark.parametrize("level", ["hospital", "patient", "record"])
def test_clusters_of_clip_units(level):
  # Clip per patient, hospitals are drawn: a whole hospital's gradients move.
  levels = ("hospital", "patient", "record")
  h = plan.Hierarchy.from_sizes([[2, 2], [2, 2, 2]], levels=levels)
  p = plan.SamplingPlan(
      (plan.FixedSize(1), plan.FixedSize(2), plan.FixedSize(1))
  )
  m = plan.Mechanism(clip_unit="patient", noise_multiplier=2.0)
  k = levels.index(level)
  drawn = exact.pair(h, p, k, 0)
  rng = np.random.default_rng(0)

  def cluster(patient):  # the other hospital lies opposite
    if patient[1] > 1:
      return -1.0
    return 1.0 if exact.holds(patient, k, 0) or patient[1] == 1 else -1.0

  reached, exceeded = 0.0, False
  for gradient in (cluster, *gradients(rng, h, k, 0)):
    for epsilon in (0.1, 1.0):
      truth = exact.divergences(drawn, 1, gradient, epsilon, 2.0)
      bound = bounds(h, p, m, level, epsilon)
      naive = max(
          dataclasses.replace(
              kind, outer_distances=(kind.unit_sensitivity,) * k
          ).divergence(np.asarray([epsilon]), "remove")
          for kind in accounting.unit_profiles(plan.Release(h, p, m), level)
      )
      check_below(truth, bound)
      reached = max(reached, truth["remove"] / bound["remove"])
      exceeded |= truth["remove"] > naive[0] + 1e-6
  assert reached > 0.3  # The bound is not vacuous,
  # and, inside a hospital, a bound that forgets that hospitals differ fails.
  assert exceeded == (level == "record")


# Random plans -----------------------------------------------------------------

STAGES = st.one_of(
    st.builds(plan.FixedSize, st.integers(1, 3)),
    st.builds(plan.Poisson, st.sampled_from([0.05, 0.3, 0.8])),
    st.just(plan.All()),
)
NOISE = st.sampled_from([0.5, 1.0, 2.5])
EPSILON = st.sampled_from([0.0, 0.03, 0.4, 1.5])


@st.composite
def enumerable(draw):
  """A hierarchy and a plan with few different samples."""
  if draw(st.booleans()):
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    levels = ("task", "example")
  else:
    families = st.lists(st.integers(1, 3), min_size=1, max_size=2)
    sizes = draw(st.lists(families, min_size=1, max_size=3))
    levels = LEVELS
  h = plan.Hierarchy.from_sizes(sizes, levels=levels)
  p = plan.SamplingPlan(
      tuple(draw(STAGES) for _ in levels), allow_short_units=True
  )
  hypothesis.assume(exact.num_samples(exact.tree(h), p.stages) <= 600)
  return h, p


@hypothesis.settings(max_examples=30, deadline=None, database=None)
@hypothesis.given(
    enumerable(), st.integers(0, 2), st.integers(0, 99), NOISE, EPSILON
)
def test_exact_is_at_most_the_bound_on_random_plans(
    described, clip, seed, z, epsilon
):
  h, p = described
  rng = np.random.default_rng(seed)
  clip = min(clip, h.depth - 1)
  m = plan.Mechanism(clip_unit=h.levels[clip], noise_multiplier=z)
  k = int(rng.integers(h.depth))
  unit = int(rng.integers(h.num_units(k)))
  drawn = exact.pair(h, p, k, unit, clip=clip)
  bound = bounds(h, p, m, h.levels[k], epsilon)
  for gradient in gradients(rng, h, k, unit):
    truth = exact.divergences(drawn, clip, gradient, epsilon, z)
    check_below(truth, bound, k, unit)


@hypothesis.settings(max_examples=25, deadline=None, database=None)
@hypothesis.given(
    tasks=st.integers(2, 4),
    examples=st.integers(2, 4),
    outer=STAGES,
    inner=STAGES,
    z=NOISE,
    epsilon=EPSILON,
)
def test_bound_is_attained_inside_tasks_that_are_clip_units(
    tasks, examples, outer, inner, z, epsilon
):
  if isinstance(outer, plan.FixedSize):
    outer = plan.FixedSize(min(outer.n, tasks))
  if isinstance(inner, plan.FixedSize):  # t can be replaced
    inner = plan.FixedSize(min(inner.n, examples - 1))
  h = plan.Hierarchy.regular((tasks, examples), levels=("task", "example"))
  p = plan.SamplingPlan((outer, inner))
  m = plan.Mechanism(clip_unit="task", noise_multiplier=z)
  hypothesis.assume(exact.num_samples(exact.tree(h), p.stages) <= 4000)
  drawn = exact.pair(h, p, 1, 0)
  reached = [
      exact.divergences(drawn, 0, gradient, epsilon, z)
      for gradient in worst_case.gradients(h, 1, 0)
  ]
  bound = bounds(h, p, m, "example", epsilon)
  for direction in amplification.DIRECTIONS:
    largest = max(r[direction] for r in reached)
    assert largest == pytest.approx(bound[direction], abs=1e-8), direction


# One pass over the units ------------------------------------------------------


@functools.cache
def passes(sizes, below, level):
  h = plan.Hierarchy.from_sizes(list(sizes), levels=("task", "example"))
  p = plan.SamplingPlan((plan.RandomAllocation(2), below))
  root = exact.tree(h)
  return h, p, tuple(
      exact.pass_samples(node, p.stages)
      for node in (root, exact.without(root, level, 0))
  )


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize(
    "below", [plan.FixedSize(1), plan.Poisson(0.4), plan.All()]
)
def test_bound_holds_for_a_pass_and_for_its_beginning(below, level, steps):
  h, p, drawn = passes((2, 3), below, level)
  z = 1.3
  m = plan.Mechanism(clip_unit="task", noise_multiplier=z)
  routes = sensitivity.routes(
      (sensitivity.Entry(plan.Release(h, p, m), steps),), h.levels[level]
  )
  rng = np.random.default_rng(level)
  table: dict = {}

  def other(step, node):
    return table.setdefault((step, node), float(rng.uniform(-1, 1)))

  def opposite(step, node):  # The other task lies opposite, or alike.
    mine = exact.holds(node, level, 0)
    return 1.0 if mine else [-1.0, 1.0][(step + node[1]) % 2]

  reached = 0.0
  worst = [
      functools.partial(lambda g, step, node: g(node), g)
      for g in worst_case.gradients(h, level, 0)
  ]
  for gradient in (*worst, opposite, other):
    larger, smaller = (exact.pass_mixture(d, 0, gradient) for d in drawn)
    for epsilon in (0.02, 0.3):
      for direction, pair in (
          ("remove", (larger, smaller)), ("add", (smaller, larger))
      ):
        if steps == 2:
          truth = exact.plane_hockey_stick(*pair, math.exp(epsilon), z)
        else:  # Only the first step was released.
          pair = tuple((means[:, 0], w) for means, w in pair)
          truth = exact.hockey_stick(*pair, math.exp(epsilon), z)
        for (phase,) in routes:
          assert phase.times == 1
          bound = float(enumerated.profile(
              phase.unit_profiles, np.asarray([epsilon]), direction
          )[0])
          assert truth <= bound * (1 + 1e-3) + 1e-9, (direction, epsilon)
          reached = max(reached, truth / bound)
  assert reached > (0.999 if level == 0 or steps == 1 else 0.4)


def test_a_pass_uses_every_unit_once():
  _, _, (drawn, _) = passes((2, 3), plan.FixedSize(1), 0)
  assert sum(weight for weight, _ in drawn) == pytest.approx(1)
  for _, steps in drawn:
    used = sorted(unit[1] for step in steps for unit in step[2])
    assert used == [0, 1]
  assert len(drawn) == 4 * 2 * 3


def test_passes_are_refused_where_they_do_not_belong():
  h = plan.Hierarchy.regular((30, 2), levels=("task", "example"))
  root = exact.tree(h)
  with pytest.raises(plan.PlanError, match="^1152921504606846976 different"):
    exact.pass_samples(root, (plan.RandomAllocation(2), plan.FixedSize(1)))
  with pytest.raises(plan.PlanError, match="makes no passes"):
    exact.pass_samples(root, (plan.Poisson(0.1), plan.FixedSize(1)))
  with pytest.raises(plan.PlanError, match="pass_samples"):
    list(exact.choices(plan.RandomAllocation(2), root[2]))


# Records that recur -----------------------------------------------------------


@pytest.mark.parametrize(
    "first", [plan.Poisson(0.3), plan.FixedSize(2), plan.All()]
)
@pytest.mark.parametrize("level", ["class", "image"])
def test_bound_holds_for_records_in_several_participants(first, level):
  # Participants 0 and 1 hold the same class 0 with the same image 0.
  counts = {"class": 2, "image": 2}
  h = plan.Hierarchy.regular(
      (3, 2, 2), levels=("participant", "class", "image"), copies=True,
      most_copies=counts,
  )
  p = plan.SamplingPlan((first, plan.FixedSize(1), plan.FixedSize(1)))
  z = 1.5
  m = plan.Mechanism(clip_unit="participant", noise_multiplier=z)
  k = h.level_index(level)
  copies = (0, 2) if level == "class" else (0, 4)
  root = smaller = exact.tree(h)
  for unit in copies:
    smaller = exact.without(smaller, k, unit)
  drawn = tuple(exact.samples(node, p.stages) for node in (root, smaller))

  def adversary(near, far, node):
    if any(exact.holds(node, k, unit) for unit in copies):
      return 1.0
    return near if any(exact.holds(node, 1, c) for c in (0, 2)) else far

  check_recurring(
      h, p, m, level, drawn,
      [functools.partial(adversary, -1.0, far) for far in (-1.0, 0.0, 1.0)],
      lambda d, gradient: exact.mixture(d, 0, gradient),
  )


@pytest.mark.parametrize("classes,images", [(3, 3), (2, 2)])
@pytest.mark.parametrize("level", ["class", "image"])
def test_bound_holds_for_tasks_that_draw_from_one_pool(classes, images, level):
  h = plan.Hierarchy.regular((classes, images), levels=("class", "image"))
  p = plan.SamplingPlan(
      (plan.FixedSize(1), plan.FixedSize(2)),
      episode=plan.Episode(
          way=1, shot=1, query=1, form="independent", tasks=2
      ),
      allow_short_units=True,
  )
  m = plan.Mechanism(clip_unit=plan.EPISODE, noise_multiplier=1.5)
  k = h.level_index(level)
  drawn = exact.pair(h, p, k, 0)

  def outputs(one_task, gradient):
    return enumerated.convolved(
        [exact.mixture(one_task, -1, gradient)] * p.episode.tasks
    )

  def adversary(near, far, node):
    if exact.holds(node, k, 0):
      return 1.0
    return near if exact.holds(node, 0, 0) else far

  check_recurring(
      h, p, m, level, drawn,
      [functools.partial(adversary, -1.0, far) for far in (-1.0, 0.0, 1.0)],
      outputs,
  )


def check_recurring(h, p, m, level, drawn, gradients, outputs):
  rng = np.random.default_rng(0)
  table: dict = {}
  units = accounting.unit_profiles(plan.Release(h, p, m), level)
  reached = max(
      enumerated.check_bounds(
          [outputs(d, gradient) for d in drawn], units, m.noise_multiplier,
          (0.05, 0.4),
      )["remove"]
      for gradient in (
          *gradients,
          lambda node: table.setdefault(node, float(rng.uniform(-1, 1))),
      )
  )
  assert reached > 0.3


# The enumerator itself --------------------------------------------------------


@hypothesis.settings(max_examples=20, deadline=None, database=None)
@hypothesis.given(enumerable())
def test_samples_are_counted_before_they_are_drawn(described):
  h, p = described
  root = exact.tree(h)
  drawn = exact.samples(root, p.stages)
  assert len(drawn) == exact.num_samples(root, p.stages)
  assert len({sample for _, sample in drawn}) == len(drawn)
  assert sum(weight for weight, _ in drawn) == pytest.approx(1)


def test_too_many_samples_are_refused_with_their_number():
  h = plan.Hierarchy.regular((30, 2), levels=("task", "example"))
  p = plan.SamplingPlan((plan.FixedSize(15), plan.FixedSize(1)))
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


# Tasks cut out of drawn classes -----------------------------------------------


@pytest.mark.parametrize(
    "sizes,drawn,way,level",
    [((4, 3), 2, 1, 0), ((4, 3), 2, 1, 1), ((5, 2), 4, 2, 0)],
)
def test_disjoint_tasks_of_classes(sizes, drawn, way, level):
  h = plan.Hierarchy.regular(sizes, levels=("class", "image"))
  p = plan.SamplingPlan(
      (plan.FixedSize(drawn), plan.FixedSize(2)),
      episode=plan.Episode(way=way, shot=1, query=1, form="disjoint"),
  )
  m = plan.Mechanism(clip_unit="episode", noise_multiplier=1.5)
  units = accounting.unit_profiles(plan.Release(h, p, m), h.levels[level])
  root = exact.tree(h)

  def cut_into_tasks(order):
    return [frozenset(order[i : i + way]) for i in range(0, len(order), way)]

  def outputs(node, gradient):
    return random_tasks.summed(
        (
            sum(map(gradient, cut_into_tasks(order))),
            probability / math.factorial(len(classes)),
        )
        for probability, (_, _, classes) in exact.samples(node, p.stages)
        for order in itertools.permutations(classes)
    )

  rng = np.random.default_rng(1)
  table: dict = {}

  def adversary(far, task):
    if any(exact.holds(c, level, 0) for c in task):
      return 1.0
    return -1.0 if any(c[1] == 0 for c in task) else far

  for gradient in (
      functools.partial(adversary, -1.0),
      functools.partial(adversary, 1.0),
      lambda task: table.setdefault(task, float(rng.uniform(-1, 1))),
  ):
    pair = [
        outputs(node, gradient)
        for node in (root, exact.without(root, level, 0))
    ]
    enumerated.check_bounds(pair, units, 1.5, (0.1, 0.6))

"""Ground truth: every sample of small hierarchies, against the bounds.

All draws of a plan are enumerated from the public objects (the hierarchy's
family sizes and the plan's stages), the outputs with and without a unit become
exact mixtures of Gaussians, and their hockey-stick divergences, computed from
normal distribution functions, must stay under what the accountant bounds, and
reach it at the worst case.
"""

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest
from scipy import optimize
from scipy import special

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import amplification
from episodic_dp.accounting import profile

LEVELS = ("alphabet", "character", "drawing")
EXAMPLE = [[4, 2, 3], [4, 5]]  # Example 3.1 of the paper.


# Samples ----------------------------------------------------------------------


def tree(hierarchy, level=-1, unit=0):
  """A unit as (level, id, children); the root has level -1."""
  if level == hierarchy.depth - 1:
    return (level, unit, ())
  if hierarchy.sizes is not None:
    size = hierarchy.sizes[level + 1]
    first = unit * size
  else:
    first, last = hierarchy.offsets[level + 1][unit : unit + 2]
    size = int(last - first)
  children = tuple(
      tree(hierarchy, level + 1, int(first) + i) for i in range(size)
  )
  return (level, unit, children)


def without(node, level, unit):
  """The tree less one unit."""
  kept = tuple(
      without(child, level, unit)
      for child in node[2]
      if child[:2] != (level, unit)
  )
  return (*node[:2], kept)


def choices(stage, children):
  """(probability, chosen children) of one stage in one unit."""
  n = len(children)
  if isinstance(stage, plan.All):
    yield 1.0, children
  elif isinstance(stage, plan.FixedSize):
    k = min(stage.n, n)
    for chosen in itertools.combinations(children, k):
      yield 1 / math.comb(n, k), chosen
  else:
    for k in range(n + 1):
      for chosen in itertools.combinations(children, k):
        yield stage.p**k * (1 - stage.p) ** (n - k), chosen


def samples(node, stages):
  """(probability, drawn subtree) of every draw; a leaf is drawn as itself."""
  level, unit, children = node
  if level == len(stages) - 1:
    return [(1.0, (level, unit, ()))]
  result = []
  below = {child: samples(child, stages) for child in children}
  for weight, chosen in choices(stages[level + 1], children):
    for parts in itertools.product(*(below[child] for child in chosen)):
      probability = weight * math.prod(p for p, _ in parts)
      if probability > 0:
        result.append((probability, (level, unit, tuple(s for _, s in parts))))
  return result


def leaves(node, depth):
  if node[0] == depth - 1:
    return [node[1]]
  return [leaf for child in node[2] for leaf in leaves(child, depth)]


def clip_units(node, level):
  """The drawn subtrees of the clip level."""
  if node[0] == level:
    return [node]
  return [unit for child in node[2] for unit in clip_units(child, level)]


# Outputs ----------------------------------------------------------------------


def mixture(drawn, clip, gradient):
  """(means, weights) of the sum of gradients of norm at most 1."""
  weights: dict[float, float] = {}
  for probability, sample in drawn:
    total = round(sum(gradient(unit) for unit in clip_units(sample, clip)), 9)
    weights[total] = weights.get(total, 0.0) + probability
  return np.asarray(list(weights)), np.asarray(list(weights.values()))


def hockey_stick(p, q, alpha, z):
  """Integral of [p - alpha q]_+, by the signs of p - alpha q."""
  means = np.concatenate([p[0], q[0]]) / z
  signed = np.concatenate([p[1], -alpha * q[1]])

  def density(x):
    x = np.atleast_1d(x)
    return np.exp(-((x[:, None] - means) ** 2) / 2) @ signed

  grid = np.linspace(means.min() - 12, means.max() + 12, 4001)
  values = density(grid)
  cuts = [-np.inf]
  for i in np.flatnonzero(np.sign(values[1:]) * np.sign(values[:-1]) < 0):
    cuts.append(
        optimize.brentq(lambda x: density(x)[0], grid[i], grid[i + 1])
    )
  cuts.append(np.inf)
  total = 0.0
  for low, high in zip(cuts, cuts[1:]):
    mass = special.ndtr(high - means) - special.ndtr(low - means)
    total += max(float(mass @ signed), 0.0)
  return total


def exact(drawn, clip, gradient, epsilon, z):
  """The true divergences {direction: value} of one pair of data sets."""
  larger, smaller = (mixture(d, clip, gradient) for d in drawn)
  alpha = math.exp(epsilon)
  return {
      "remove": hockey_stick(larger, smaller, alpha, z),
      "add": hockey_stick(smaller, larger, alpha, z),
  }


def bounds(hierarchy, sampling_plan, mechanism, level, epsilon):
  kinds = accounting.kinds(hierarchy, sampling_plan, mechanism, level)
  at = np.asarray([epsilon])
  return {
      d: float(profile.profile(kinds, at, d)[0])
      for d in amplification.DIRECTIONS
  }


def pair(hierarchy, sampling_plan, level, unit):
  root = tree(hierarchy)
  return (
      samples(root, sampling_plan.stages),
      samples(without(root, level, unit), sampling_plan.stages),
  )


def holds(node, level, unit):
  """Whether a drawn subtree contains the unit."""
  if node[0] >= level:
    return node[:2] == (level, unit)
  return any(holds(child, level, unit) for child in node[2])


# The example of the paper -----------------------------------------------------


@functools.cache
def example():
  h = plan.Hierarchy.from_sizes(EXAMPLE, levels=LEVELS)
  p = plan.SamplingPlan((plan.FixedSize(1),) * 3)
  return h, p, pair(h, p, 2, 4)  # drawing 4 is the first of two siblings


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

  truth = exact(drawn, 2, gradient, epsilon, 1.0)[direction]
  # Another drawing may have the larger bound; this one has q = 1/6, p = 1/2.
  kind = accounting.Amplification((0.5, 1 / 3), 0.5, (2.0, 2.0), 2.0)
  own = float(kind.divergence(np.asarray([epsilon]), direction)[0])
  assert truth == pytest.approx(value, abs=5e-9)
  assert own == pytest.approx(truth, abs=1e-9)
  assert truth <= bounds(h, p, m, "drawing", epsilon)[direction] + 1e-12


def test_printed_theorem_is_violated():
  _, _, drawn = example()
  truth = exact(
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
        sum(weight for weight, s in drawn if holds(s, k, unit))
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
  drawn = pair(h, p, 1, 0)

  def gradient(unit):  # absent: 0; with the image: +1; without it: -1
    if unit[1] != 0:
      return 0.0
    return 1.0 if holds(unit, 1, 0) else -1.0

  truth = exact(drawn, 0, gradient, epsilon, z)
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
  root = tree(h)
  everything = samples(root, p.stages)
  for k, level in enumerate(LEVELS):
    z = [0.8, 2.0][k % 2]
    m = plan.Mechanism(clip_unit=LEVELS[clip], noise_multiplier=z)
    for unit in rng.permutation(h.num_units(k))[:2]:
      drawn = (everything, samples(without(root, k, int(unit)), p.stages))
      parent = int(h.parents(k)[unit])
      for gradient in gradients(rng, k, int(unit), parent):
        for epsilon in (0.05, 0.7):
          truth = exact(drawn, clip, gradient, epsilon, z)
          bound = bounds(h, p, m, level, epsilon)
          for direction in amplification.DIRECTIONS:
            assert truth[direction] <= bound[direction] + 1e-9, (
                level, unit, direction, epsilon
            )


def gradients(rng, level, unit, parent):
  """Gradients of norm at most 1: adversarial by what a clip unit holds, random.

  A clip unit's gradient may depend on all that was drawn inside it.
  """

  def by_content(with_it, near, far, node):
    if node[0] >= level:
      return with_it if node[:2] == (level, unit) else far
    if holds(node, level, unit):
      return with_it
    if level and holds(node, level - 1, parent):
      return near
    return far

  for with_it, near, far in ((1, -1, -1), (1, -1, 0), (1, -1, 1)):
    yield functools.partial(by_content, with_it, near, far)
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
  drawn = pair(h, p, k, 0)
  rng = np.random.default_rng(0)

  def cluster(patient):  # the other hospital lies opposite
    if patient[1] > 1:
      return -1.0
    return 1.0 if holds(patient, k, 0) or patient[1] == 1 else -1.0

  reached, exceeded = 0.0, False
  for gradient in (cluster, *gradients(rng, k, 0, 0)):
    for epsilon in (0.1, 1.0):
      truth = exact(drawn, 1, gradient, epsilon, 2.0)
      bound = bounds(h, p, m, level, epsilon)
      (kind,) = accounting.kinds(h, p, m, level)
      naive = dataclasses.replace(
          kind, outer_distances=(kind.own_distance,) * k
      ).divergence(np.asarray([epsilon]), "remove")
      for direction in amplification.DIRECTIONS:
        assert truth[direction] <= bound[direction] + 1e-9
      reached = max(reached, truth["remove"] / bound["remove"])
      exceeded |= truth["remove"] > naive[0] + 1e-6
  assert reached > 0.3  # The bound is not vacuous,
  # and, inside a hospital, a bound that forgets that hospitals differ fails.
  assert exceeded == (level == "record")


# Tasks cut out of drawn classes -----------------------------------------------


@pytest.mark.parametrize("level", [0, 1])
def test_disjoint_tasks_of_classes(level):
  h = plan.Hierarchy.regular((4, 3), levels=("class", "image"))
  p = plan.SamplingPlan(
      (plan.FixedSize(2), plan.FixedSize(2)),
      episode=plan.Episode(way=1, shot=1, query=1, form="disjoint"),
  )
  _check_disjoint(h, p, level)


def test_disjoint_tasks_of_several_classes():
  h = plan.Hierarchy.regular((5, 2), levels=("class", "image"))
  p = plan.SamplingPlan(
      (plan.FixedSize(4), plan.FixedSize(2)),
      episode=plan.Episode(way=2, shot=1, query=1, form="disjoint"),
  )
  _check_disjoint(h, p, 0)


def _check_disjoint(h, p, level):
  way = p.episode.way
  m = plan.Mechanism(clip_unit="episode", noise_multiplier=1.5)
  root = tree(h)

  def outputs(node, gradient):
    weights: dict[float, float] = {}
    for probability, (_, _, classes) in samples(node, p.stages):
      orders = list(itertools.permutations(classes))
      for order in orders:
        tasks = [
            frozenset(order[i : i + way]) for i in range(0, len(order), way)
        ]
        total = round(sum(map(gradient, tasks)), 9)
        weights[total] = (
            weights.get(total, 0.0) + probability / len(orders)
        )
    return np.asarray(list(weights)), np.asarray(list(weights.values()))

  rng = np.random.default_rng(1)
  table: dict = {}

  def adversary(far, task):
    if any(holds(c, level, 0) for c in task):
      return 1.0
    return -1.0 if any(c[1] == 0 for c in task) else far

  for gradient in (
      functools.partial(adversary, -1.0),
      functools.partial(adversary, 1.0),
      lambda task: table.setdefault(task, float(rng.uniform(-1, 1))),
  ):
    larger = outputs(root, gradient)
    smaller = outputs(without(root, level, 0), gradient)
    for epsilon in (0.1, 0.6):
      alpha = math.exp(epsilon)
      bound = bounds(h, p, m, h.levels[level], epsilon)
      assert hockey_stick(larger, smaller, alpha, 1.5) <= bound["remove"] + 1e-9
      assert hockey_stick(smaller, larger, alpha, 1.5) <= bound["add"] + 1e-9

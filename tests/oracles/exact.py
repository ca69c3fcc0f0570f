"""Ground truth for tiny hierarchies: every sample of a plan, one by one.

All draws of a plan are enumerated from the very objects that the sampler and
the accountant read (the hierarchy's family sizes and the plan's stages), so
that what is compared is what is sampled. Given a gradient of norm at most 1
for every clip unit, the released sums with and without one privacy unit are
mixtures of Gaussians with equal spread on a line, and both hockey-stick
divergences between them follow from normal distribution functions.

What comes out is the divergence of one pair of data sets under one choice of
gradients: a lower bound on what a guarantee has to cover, attained where the
gradients are the worst. Nothing here bounds epsilon from above.

A drawn or whole tree is a node (level, unit, children), with the units of each
level numbered as in the hierarchy and the root at level -1.
"""

from collections.abc import Callable, Iterator, Sequence
import itertools
import math

import numpy as np
from scipy import special

from episodic_dp import plan as plan_lib
from episodic_dp.accounting.profiles import amplification

# More draws than this are refused: a second or two of enumeration.
MAX_SAMPLES = 100_000
# Sums closer than this many decimals are one component of the mixture.
_DECIMALS = 9
# Where the sign of the difference of densities is looked at.
_POINTS, _MARGIN, _HALVINGS = 4001, 12.0, 45
# Of the grid for the sums of two steps, in standard deviations.
_SPACING = 0.04

Node = tuple[int, int, tuple["Node", ...]]
Draws = list[tuple[float, Node]]
# Means (in clip norms) and weights of the components: float64[n], float64[n].
Mixture = tuple[np.ndarray, np.ndarray]
Gradient = Callable[[Node], float]


# Samples ----------------------------------------------------------------------


def tree(
    hierarchy: plan_lib.Hierarchy, level: int = -1, unit: int = 0
) -> Node:
  """A unit with all that lies below it; by default the whole hierarchy."""
  if level == hierarchy.depth - 1:
    return (level, unit, ())
  if hierarchy.sizes is not None:
    size = hierarchy.sizes[level + 1]
    first = unit * size
  else:
    assert hierarchy.offsets is not None
    first, last = map(int, hierarchy.offsets[level + 1][unit : unit + 2])
    size = last - first
  children = tuple(tree(hierarchy, level + 1, first + i) for i in range(size))
  return (level, unit, children)


def without(node: Node, level: int, unit: int) -> Node:
  """The tree less one unit, numbered as before: the smaller neighbour."""
  kept = tuple(
      without(child, level, unit)
      for child in node[2]
      if child[:2] != (level, unit)
  )
  return (*node[:2], kept)


def choices(
    stage: plan_lib.Stage, children: Sequence[Node]
) -> Iterator[tuple[float, tuple[Node, ...]]]:
  """(probability, chosen children) of one stage in one unit.

  Raises:
    PlanError: the stage does not draw every step afresh.
  """
  n = len(children)
  if isinstance(stage, plan_lib.All):
    yield 1.0, tuple(children)
  elif isinstance(stage, plan_lib.FixedSize):
    k = min(stage.n, n)
    for chosen in itertools.combinations(children, k):
      yield 1 / math.comb(n, k), chosen
  elif isinstance(stage, plan_lib.Poisson):
    for k in range(n + 1):
      for chosen in itertools.combinations(children, k):
        yield stage.p**k * (1 - stage.p) ** (n - k), chosen
  else:
    raise plan_lib.PlanError(
        f"stage {stage} does not draw every step afresh: use FixedSize, Poisson"
        " or All, or pass_samples"
    )


def num_samples(node: Node, stages: Sequence[plan_lib.Stage]) -> int:
  """Count the different draws of the stages without drawing them."""
  level, _, children = node
  if level == len(stages) - 1:
    return 1
  # Coefficient k counts the draws of k children with all that is below them.
  by_size = [1]
  for child in children:
    below = num_samples(child, stages)
    by_size = [
        a + below * b for a, b in zip([*by_size, 0], [0, *by_size])
    ]
  stage = stages[level + 1]
  if isinstance(stage, plan_lib.FixedSize):
    return by_size[min(stage.n, len(children))]
  return sum(by_size) if isinstance(stage, plan_lib.Poisson) else by_size[-1]


def samples(
    node: Node,
    stages: Sequence[plan_lib.Stage],
    *,
    clip: int | None = None,
) -> Draws:
  """(probability, drawn tree) of every draw with a probability above 0.

  Args:
    node: the whole hierarchy, or that without a unit.
    stages: of the plan.
    clip: the clip level, to leave out what a clip unit's gradient may not
      depend on: units inside it that were drawn without an example. None to
      leave nothing out.

  Raises:
    PlanError: there are more than `MAX_SAMPLES` draws, or a stage cannot be
      enumerated.
  """
  count = num_samples(node, stages)
  if count > MAX_SAMPLES:
    raise plan_lib.PlanError(
        f"{count} different samples are too many to enumerate (at most"
        f" {MAX_SAMPLES}): use a smaller hierarchy or draw less of it"
    )
  drawn, last = _samples(node, stages), len(stages) - 1
  if clip is None:
    return drawn
  return [(p, _filled(sample, clip, last)) for p, sample in drawn]


def _filled(node: Node, clip: int, last: int) -> Node:
  """The drawn tree less the units without examples inside clip units.

  Examples have level `last`.
  """
  parts = (_filled(child, clip, last) for child in node[2])
  return (
      *node[:2],
      tuple(p for p in parts if p[0] <= clip or p[0] == last or p[2]),
  )


def _samples(node: Node, stages: Sequence[plan_lib.Stage]) -> Draws:
  level, unit, children = node
  if level == len(stages) - 1:
    return [(1.0, (level, unit, ()))]
  result = []
  below = {child: _samples(child, stages) for child in children}
  for weight, chosen in choices(stages[level + 1], children):
    for parts in itertools.product(*(below[child] for child in chosen)):
      probability = weight * math.prod(p for p, _ in parts)
      if probability > 0:
        result.append((probability, (level, unit, tuple(s for _, s in parts))))
  return result


def pair(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    level: int,
    unit: int,
    *,
    clip: int | None = None,
) -> tuple[Draws, Draws]:
  """The draws of the whole hierarchy, and of that without one unit.

  See `samples` for `clip`.
  """
  root = tree(hierarchy)
  return (
      samples(root, plan.stages, clip=clip),
      samples(without(root, level, unit), plan.stages, clip=clip),
  )


def clip_units(node: Node, level: int) -> list[Node]:
  """The drawn subtrees of one level."""
  if node[0] == level:
    return [node]
  return [unit for child in node[2] for unit in clip_units(child, level)]


def holds(node: Node, level: int, unit: int) -> bool:
  """Return whether a drawn subtree is, or contains, the unit."""
  if node[0] >= level:
    return node[:2] == (level, unit)
  return any(holds(child, level, unit) for child in node[2])


def pass_samples(
    node: Node,
    stages: Sequence[plan_lib.Stage],
    *,
    clip: int | None = None,
) -> list[tuple[float, tuple[Node, ...]]]:
  """(probability, what each step draws) of one pass of `RandomAllocation`.

  Args:
    node: the whole hierarchy, or that without a unit.
    stages: the first is the `RandomAllocation`.
    clip: see `samples`.

  Raises:
    PlanError: there are more than `MAX_SAMPLES` passes, or the first stage is
      no `RandomAllocation`.
  """
  first = stages[0]
  if not isinstance(first, plan_lib.RandomAllocation):
    raise plan_lib.PlanError(
        f"stage {first} makes no passes: use RandomAllocation(steps)"
    )
  count = math.prod(first.steps * num_samples(u, stages) for u in node[2])
  if count > MAX_SAMPLES:
    raise plan_lib.PlanError(
        f"{count} different passes are too many to enumerate (at most"
        f" {MAX_SAMPLES}): use a smaller hierarchy or fewer steps"
    )
  choices_of = [
      [
          (probability / first.steps, step, drawn)
          for step in range(first.steps)
          for probability, drawn in _samples(unit, stages)
      ]
      for unit in node[2]
  ]
  result = []
  for chosen in itertools.product(*choices_of):
    steps = tuple(
        (*node[:2], tuple(drawn for _, at, drawn in chosen if at == step))
        for step in range(first.steps)
    )
    if clip is not None:
      steps = tuple(_filled(s, clip, len(stages) - 1) for s in steps)
    result.append((math.prod(p for p, _, _ in chosen), steps))
  return result


# Outputs ----------------------------------------------------------------------


def mixture(drawn: Draws, clip: int, gradient: Gradient) -> Mixture:
  """The sums over the drawn clip units, with their probabilities.

  Args:
    drawn: of `samples`.
    clip: the level (from 0) whose drawn subtrees have one gradient each.
    gradient: drawn subtree -> a number in [-1, 1], in clip norms.
  """
  weights: dict[float, float] = {}
  for probability, sample in drawn:
    total = sum(gradient(unit) for unit in clip_units(sample, clip))
    total = round(total, _DECIMALS)
    weights[total] = weights.get(total, 0.0) + probability
  return np.asarray(list(weights)), np.asarray(list(weights.values()))


def hockey_stick(p: Mixture, q: Mixture, alpha: float, z: float) -> float:
  """H_alpha(P || Q), the integral of [p - alpha q]_+, for any alpha > 0.

  Between two changes of the sign of p - alpha q the integral is a sum of normal
  distribution functions. Two changes within one cell of the grid would be
  missed, which can only make the result smaller.

  Args:
    p: the components of P, whose means are in clip norms.
    q: those of Q.
    alpha: above 0.
    z: the noise multiplier, the spread of every component in clip norms.
  """
  means = np.concatenate([p[0], q[0]]) / z
  signed = np.concatenate([p[1], -alpha * q[1]])

  def is_positive(x: np.ndarray) -> np.ndarray:
    return np.exp(-((x[:, None] - means) ** 2) / 2) @ signed > 0

  grid = np.linspace(means.min() - _MARGIN, means.max() + _MARGIN, _POINTS)
  positive = is_positive(grid)
  changes = np.flatnonzero(positive[1:] != positive[:-1])
  low, high, start = grid[changes], grid[changes + 1], positive[changes]
  for _ in range(_HALVINGS if changes.size else 0):
    middle = (low + high) / 2
    same = is_positive(middle) == start
    low, high = np.where(same, middle, low), np.where(same, high, middle)
  cuts = [-np.inf, *high, np.inf]
  total = 0.0
  for left, right in zip(cuts, cuts[1:]):
    mass = special.ndtr(right - means) - special.ndtr(left - means)
    total += max(float(mass @ signed), 0.0)
  return total


def pass_mixture(
    drawn: list[tuple[float, tuple[Node, ...]]],
    clip: int,
    gradient: Callable[[int, Node], float],
) -> Mixture:
  """The sums of every step of a pass: means float64[n, steps] and weights.

  Args:
    drawn: of `pass_samples`.
    clip: the clip level (from 0).
    gradient: (step, drawn subtree) -> a number in [-1, 1].
  """
  weights: dict[tuple[float, ...], float] = {}
  for probability, steps in drawn:
    total = tuple(
        round(sum(gradient(i, u) for u in clip_units(step, clip)), _DECIMALS)
        for i, step in enumerate(steps)
    )
    weights[total] = weights.get(total, 0.0) + probability
  return np.asarray(list(weights)), np.asarray(list(weights.values()))


def twice(part: Mixture) -> Mixture:
  """Two independent steps of one mixture: means float64[n, 2] and weights."""
  means, weights = part
  first, second = np.meshgrid(means, means)
  both = np.stack([first.ravel(), second.ravel()], axis=1)
  return both, np.outer(weights, weights).ravel()


def plane_hockey_stick(
    p: Mixture, q: Mixture, alpha: float, z: float
) -> float:
  """`hockey_stick` for sums of two steps, means float64[n, 2].

  By a sum over a fine grid, right to about four digits.
  """
  lowest = min(p[0].min(), q[0].min()) / z - 7
  highest = max(p[0].max(), q[0].max()) / z + 7
  axis = np.arange(lowest, highest, _SPACING)

  def density(part: Mixture) -> np.ndarray:
    means, weights = part
    x, y = (
        np.exp(-((axis[:, None] - column / z) ** 2) / 2) for column in means.T
    )
    return (x * weights) @ y.T

  surplus = np.maximum(density(p) - alpha * density(q), 0.0)
  return float(surplus.sum()) * _SPACING**2 / (2 * math.pi)


def divergences(
    drawn: tuple[Draws, Draws],
    clip: int,
    gradient: Gradient,
    epsilon: float,
    z: float,
) -> dict[amplification.Direction, float]:
  """The true divergence of one pair of data sets, in each direction.

  Args:
    drawn: of `pair`.
    clip: the clip level (from 0).
    gradient: see `mixture`.
    epsilon: ln alpha.
    z: the noise multiplier.
  """
  larger, smaller = (mixture(d, clip, gradient) for d in drawn)
  alpha = math.exp(epsilon)
  return {
      "remove": hockey_stick(larger, smaller, alpha, z),
      "add": hockey_stick(smaller, larger, alpha, z),
  }

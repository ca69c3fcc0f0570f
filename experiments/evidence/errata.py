"""The numbers of accounting/README.md: what is wrong in print, and by how much.

"Exact" numbers are integrals over every sample of a small hierarchy
(`accounting.reference.exact`); the others say what they are.
[P] is Tombs, Kotevska and Young, "Privacy Amplification for Episodic Training
Methods" (2022); [M] is "Meta-Learning with Differential Privacy" (DP-MAML).
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
import pathlib

import numpy as np

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.accountants import phases as phases_lib
from episodic_dp.accounting.accountants import registry
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.accounting.reference import exact
from episodic_dp.accounting.reference import worst_case
from experiments.evidence import leaks
from experiments.evidence import pages
from experiments.evidence import printed_epsilons
from experiments.evidence import studies
from experiments.evidence import tightened

FILE = (
    pathlib.Path(__file__).resolve().parents[2]
    / "episodic_dp" / "accounting" / "README.md"
)

# Example 3.1 of [P] -----------------------------------------------------------


@functools.cache
def example() -> plan.Hierarchy:
  """The tree of Example 3.1."""
  return plan.Hierarchy.from_sizes(
      [[4, 2, 3], [4, 5]], levels=("i1", "i2", "example")
  )


def inclusion() -> pages.Table:
  """eta of Example 3.1: true, as drawn, and as [P] prints it."""
  rows = []
  h = example()
  for n in ((1, 1, 1), (2, 2, 1)):
    p = plan.SamplingPlan(tuple(map(plan.FixedSize, n)))
    drawn = exact.samples(exact.tree(h), p.stages)
    frequencies = [
        sum(weight for weight, s in drawn if exact.holds(s, 2, unit))
        for unit in range(h.num_leaves)
    ]
    paths = h.size_paths(2)
    counted = math.prod(n)
    rows.append((
        str(n),
        plan.inclusion_rate(h, p, "example"),
        max(frequencies),
        float(counted / np.prod(paths[:, 1:], axis=1).min()),
        min(frequencies),
    ))
  return pages.Table(
      ("n", "η = largest inclusion probability", "the same, enumerated",
       "denominators as printed (no number of primary units)",
       "\"min\" as printed"),
      tuple(rows),
  )


def theorem3(epsilons: Sequence[float] = (0.1, 0.5, 1.0)) -> pages.Table:
  """One step on Example 3.1: the truth, the bound, and two wrong bounds."""
  h = example()
  p = plan.SamplingPlan((plan.FixedSize(1),) * 3)
  unit, eta, z = 4, 1 / 12, 1.0  # The first of the two examples of U_12.
  drawn = exact.pair(h, p, 2, unit)
  kind = accounting.Amplification((1 / 2, 1 / 3), 1 / 2, (2.0, 2.0), 2.0)
  one_stage = accounting.Amplification((), eta, (), 2.0)
  rows = []
  for epsilon in epsilons:
    truth = [
        exact.divergences(drawn, 2, g, epsilon, z)
        for g in worst_case.gradients(h, 2, unit)
    ]
    at = np.asarray([epsilon])
    for direction in amplification.DIRECTIONS:
      rows.append((
          epsilon,
          direction,
          max(t[direction] for t in truth),
          float(kind.divergence(at, direction)[0]),
          accounting.theorem3_as_printed(eta, epsilon, z),
          float(one_stage.divergence(at, direction)[0]),
      ))
  return pages.Table(
      ("ε", "direction", "exact δ, worst data", "bound (tight)",
       "Theorem 3 as printed", "one stage of rate η, base profile at 2C"),
      tuple(rows),
  )


# Several steps ----------------------------------------------------------------


def composition() -> pages.Table:
  """Epsilon of both directions after T steps, right and as one stage."""
  rows = []
  for q, p, z, delta in (
      (0.004, 0.2, 1.0, 1e-6), (0.004, 1.0, 1.0, 1e-6), (0.1, 0.1, 4.0, 1e-5)
  ):

    def both(rate, own, distances, delta=delta):
      return " / ".join(
          pages.shown(accounting.epsilon(
              rate, own, distances, steps=250, delta=delta, direction=d
          ))
          for d in amplification.DIRECTIONS
      )

    rows.append((
        q, p, z, f"{delta:g}",
        both(q, p, 2 / z),
        both(q, p, (1 / z, 2 / z)),
        both(1.0, q * p, 2 / z) if p < 1 else None,
        both(1.0, q * p, 1 / z),
    ))
  return pages.Table(
      ("q", "p", "z", "δ", "tasks by FixedSize", "tasks by Poisson",
       "one stage of rate qp at 2C (not valid)", "as printed (not valid)"),
      tuple(rows),
  )


def two_steps() -> pages.Table:
  """Two steps, enumerated, beside what composing the profile gives."""
  h, unit = example(), 4
  p = plan.SamplingPlan((plan.FixedSize(1),) * 3)
  tree = accounting.Amplification((1 / 2, 1 / 3), 1 / 2, (2.0, 2.0), 2.0)
  found = [
      [exact.mixture(drawn, 2, g) for drawn in exact.pair(h, p, 2, unit)]
      for g in worst_case.gradients(h, 2, unit)
  ]
  # One Poisson stage: the others are absent or have no gradient.
  rate = 0.2
  one = (np.asarray([1.0, 0.0]), np.asarray([rate, 1 - rate]))
  zero = (np.zeros(1), np.ones(1))
  flat = accounting.Amplification((), rate, (), 1.0)
  rows = []
  for name, kind, pairs in (
      ("Example 3.1", tree, found),
      (f"one stage, Poisson({rate})", flat, [[one, zero]]),
  ):
    for direction in amplification.DIRECTIONS:
      epsilon, truth = 0.5 if direction == "remove" else 0.1, 0.0
      for pair in pairs:
        larger, smaller = pair if direction == "remove" else pair[::-1]
        truth = max(truth, exact.plane_hockey_stick(
            exact.twice(larger), exact.twice(smaller), math.exp(epsilon), 1.0
        ))
      run = (phases_lib.Phase((kind,), 2),)
      bound = registry.get("pld").delta(run, direction, epsilon)
      rows.append((name, direction, epsilon, truth, bound))
  return pages.Table(
      ("plan", "direction", "ε", "exact δ of two steps, worst data",
       "composed bound"),
      tuple(rows),
  )


# Clusters and recurring records -----------------------------------------------


def clusters() -> pages.Table:
  """Records of patients of hospitals, when a hospital's sum moves further."""
  levels = ("hospital", "patient", "record")
  # Small enough to enumerate.
  h = plan.Hierarchy.from_sizes([[2, 2], [2, 2, 2]], levels=levels)
  p = plan.SamplingPlan(
      (plan.FixedSize(1), plan.FixedSize(2), plan.FixedSize(1))
  )
  m = plan.Mechanism(clip_unit="patient", noise_multiplier=2.0)
  drawn = exact.pair(h, p, 2, 0)
  (kind,) = accounting.unit_profiles(plan.Release(h, p, m), "record")

  def gradient(patient):  # The other hospital lies opposite.
    if patient[1] > 1:
      return -1.0
    return 1.0 if exact.holds(patient, 2, 0) or patient[1] == 1 else -1.0

  assert isinstance(kind, accounting.Amplification)
  rows: list[tuple[pages.Cell, ...]] = []
  for epsilon in (0.1, 0.5):
    rows.append(_cluster_row(
        "2 hospitals of 2 and 3 patients, z = 2", kind, "remove", epsilon,
        exact.divergences(drawn, 1, gradient, epsilon, 2.0)["remove"],
    ))
  # Ten of twenty patients in every tenth hospital, clipped per patient, z = 1:
  # outputs on one line, by integrating their mixture.
  kind = accounting.Amplification((0.1, 0.5), 0.5, (20.0, 2.0), 2.0)
  epsilons: dict[amplification.Direction, float] = {"remove": 0.5, "add": 0.2}
  for direction, epsilon in epsilons.items():
    rows.append(_cluster_row(
        "10 of 20 patients, 1 of 10 hospitals, z = 1", kind, direction,
        epsilon, _on_a_line(kind, direction, epsilon),
    ))
  return pages.Table(
      ("record of", "direction", "ε", "exact δ", "bound",
       "if a hospital moved the sum by 2C"),
      tuple(rows),
  )


def _cluster_row(
    name: str,
    kind: accounting.Amplification,
    direction: amplification.Direction,
    epsilon: float,
    truth: float,
) -> tuple[pages.Cell, ...]:
  at = np.asarray([epsilon])
  naive = dataclasses.replace(
      kind, outer_distances=(kind.unit_sensitivity,) * len(kind.outer_rates)
  )
  return (
      name, direction, epsilon, truth,
      float(kind.divergence(at, direction)[0]),
      float(naive.divergence(at, direction)[0]),
  )


def _on_a_line(
    kind: accounting.Amplification,
    direction: amplification.Direction,
    epsilon: float,
) -> float:
  """The divergence when all outputs lie on one line, on one side."""
  q, p = kind.parent_rate, kind.rate
  with_it, without_it = 0.0, -kind.unit_sensitivity
  if direction == "add":
    with_it, without_it = without_it, with_it
  outer = [-d for d in kind.outer_distances]
  larger = (
      np.asarray([with_it, without_it, *outer]),
      np.asarray([q * p, q * (1 - p), *kind.outer_weights]),
  )
  smaller = (
      np.asarray([without_it, *outer]), np.asarray([q, *kind.outer_weights])
  )
  pair = (larger, smaller) if direction == "remove" else (smaller, larger)
  return exact.hockey_stick(*pair, math.exp(epsilon), 1.0)


def recurrence() -> pages.Table:
  """A class drawn anew by each task: the marginal count is not enough."""
  rate, p, epsilon = 0.1, 0.5, 0.1
  at = np.asarray([epsilon])
  tight = accounting.Amplification((rate,), p, (2.0,), 2.0)
  inside = accounting.Amplification((), p, (), 2.0)
  marginal = accounting.Amplification((), rate * p, (), 2.0)
  rows = []
  for direction in amplification.DIRECTIONS:
    rows.append((
        direction,
        _on_a_line(tight, direction, epsilon),
        rate * float(inside.divergence(at, direction)[0]),
        float(marginal.divergence(at, direction)[0]),
    ))
  return pages.Table(
      ("direction", "exact δ(0.1)", "number of tasks with the class revealed",
       "marginal count of the image (not valid)"),
      tuple(rows),
  )


def emptied_unit() -> pages.Table:
  """The one record of class A is taken out, beside four of class B.

  One of the classes is drawn whole, clipped per record, z = 2; the record of A
  lies opposite to all others.
  """
  z, epsilon, labels = 2.0, 2.0, np.asarray(list("ABBBB"))
  p = plan.SamplingPlan((plan.FixedSize(1), plan.All()))
  rows = []
  for name, units in (
      ("a class without a record stays", ["A", "B"]),
      ("it leaves with its last record (not valid)", None),
  ):
    trees = [
        plan.Hierarchy.from_labels({"class": kept}, leaf="record", units=units)
        for kept in (labels, labels[1:])
    ]
    m = plan.Mechanism(clip_unit="record", noise_multiplier=z)
    kinds = accounting.unit_profiles(plan.Release(trees[0], p, m), "record")
    signs = ([-1.0, *[1.0] * 4], [1.0] * 4)  # Of the records of each tree.
    sums = [
        exact.mixture(
            exact.samples(exact.tree(tree), p.stages),
            1,
            functools.partial(_nth, numbers),
        )
        for tree, numbers in zip(trees, signs)
    ]
    claimed, truth = (
        max(
            float(unit_profile.profile(kinds, np.asarray([epsilon]), d)[0])
            for d in amplification.DIRECTIONS
        ),
        max(
            exact.hockey_stick(one, other, math.exp(epsilon), z)
            for one, other in (sums, sums[::-1])
        ),
    )
    rows.append((name, truth, claimed))
  return pages.Table(("the other data set", "exact δ(2)", "bound"), tuple(rows))


def _nth(numbers: list[float], record: exact.Node) -> float:
  return numbers[record[1]]


# The page ---------------------------------------------------------------------


TABLES: dict[str, Callable[[], pages.Table]] = {
    "inclusion": inclusion,
    "theorem3": theorem3,
    "composition": composition,
    "clusters": clusters,
    "recurrence": recurrence,
    "two_steps": two_steps,
    "emptied_unit": emptied_unit,
    **printed_epsilons.TABLES,
    **studies.TABLES,
    **tightened.TABLES,
    "percentile_clipping": leaks.percentile_clipping,
    "second_order": leaks.second_order,
}


def tables() -> dict[str, pages.Table]:
  """Every table, by name."""
  return {name: table() for name, table in TABLES.items()}


def document() -> str:
  """The README with its tables as the code computes them."""
  return pages.filled(FILE.read_text(encoding="utf-8"), "errata", tables())

"""The numbers of accounting/README.md: what is wrong in print, and by how much.

  python -m experiments.evidence.errata                the tables, in Markdown
  python -m experiments.evidence.errata --format=json  the same as data
  python -m experiments.evidence.errata --write        into the README

A few seconds, without data or JAX. "Exact" numbers are integrals over every
sample of a small hierarchy (`accounting.exact`); the others say what they are.
[P] is Tombs, Kotevska and Young, "Privacy Amplification for Episodic Training
Methods" (2022); [M] is "Meta-Learning with Differential Privacy" (DP-MAML).
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import json
import math
import pathlib
import re

from absl import flags
import numpy as np
from scipy import special

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.accountants import phases as phases_lib
from episodic_dp.accounting.accountants import registry
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.reference import exact
from episodic_dp.cli import app
from episodic_dp.output import files

README = (
    pathlib.Path(__file__).resolve().parents[2]
    / "episodic_dp" / "accounting" / "README.md"
)

Cell = str | int | float | bool | None


@dataclasses.dataclass(frozen=True)
class Table:
  """Columns and rows; numbers are kept as computed and shown with few digits.
  """

  columns: tuple[str, ...]
  rows: tuple[tuple[Cell, ...], ...]

  def markdown(self) -> str:
    """A table of GitHub-flavoured Markdown."""
    rows = [self.columns, ("---",) * len(self.columns)]
    rows += [tuple(map(_shown, row)) for row in self.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _shown(cell: Cell) -> str:
  if isinstance(cell, float):
    return "< 1e-15" if 0 < cell < 1e-15 else f"{cell:.4g}"
  return "-" if cell is None else str(cell)


# Example 3.1 of [P] -----------------------------------------------------------


@functools.cache
def _example() -> plan.Hierarchy:
  return plan.Hierarchy.from_sizes(
      [[4, 2, 3], [4, 5]], levels=("i1", "i2", "example")
  )


def inclusion() -> Table:
  """eta of Example 3.1: true, as drawn, and as [P] prints it."""
  rows = []
  h = _example()
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
  return Table(
      ("n", "η = largest inclusion probability", "the same, enumerated",
       "denominators as printed (no number of primary units)",
       "\"min\" as printed"),
      tuple(rows),
  )


def theorem3() -> Table:
  """One step on Example 3.1: the truth, the bound, and two wrong bounds."""
  h = _example()
  p = plan.SamplingPlan((plan.FixedSize(1),) * 3)
  unit, eta, z = 4, 1 / 12, 1.0  # The first of the two examples of U_12.
  drawn = exact.pair(h, p, 2, unit)
  kind = accounting.Amplification((1 / 2, 1 / 3), 1 / 2, (2.0, 2.0), 2.0)
  one_stage = accounting.Amplification((), eta, (), 2.0)
  rows = []
  for epsilon in (0.1, 0.5, 1.0):
    truth = [
        exact.divergences(drawn, 2, g, epsilon, z)
        for g in exact.worst_gradients(h, 2, unit)
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
  return Table(
      ("ε", "direction", "exact δ, worst data", "bound (tight)",
       "Theorem 3 as printed", "one stage of rate η, base profile at 2C"),
      tuple(rows),
  )


# Several steps ----------------------------------------------------------------


def composition() -> Table:
  """Epsilon of both directions after T steps, right and as one stage."""
  rows = []
  for q, p, z, delta in (
      (0.004, 0.2, 1.0, 1e-6), (0.004, 1.0, 1.0, 1e-6), (0.1, 0.1, 4.0, 1e-5)
  ):

    def both(rate, own, distances, delta=delta):
      return " / ".join(
          _shown(accounting.epsilon(
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
  return Table(
      ("q", "p", "z", "δ", "tasks by FixedSize", "tasks by Poisson",
       "one stage of rate qp at 2C (not valid)", "as printed (not valid)"),
      tuple(rows),
  )


def two_steps() -> Table:
  """Two steps, enumerated, beside what composing the profile gives."""
  h, unit = _example(), 4
  p = plan.SamplingPlan((plan.FixedSize(1),) * 3)
  tree = accounting.Amplification((1 / 2, 1 / 3), 1 / 2, (2.0, 2.0), 2.0)
  found = [
      [exact.mixture(drawn, 2, g) for drawn in exact.pair(h, p, 2, unit)]
      for g in exact.worst_gradients(h, 2, unit)
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
  return Table(
      ("plan", "direction", "ε", "exact δ of two steps, worst data",
       "composed bound"),
      tuple(rows),
  )


def samplers() -> Table:
  """The participant of [M]'s setting, by how its tasks are drawn."""
  h = plan.Hierarchy.regular(
      (400_000, 5, 2), levels=("participant", "class", "image")
  )
  m = plan.Mechanism(clip_unit="participant", noise_multiplier=1.0)
  stages: list[tuple[str, plan.Stage]] = [
      ("Poisson(0.004)", plan.Poisson(0.004)),
      ("FixedSize(1600)", plan.FixedSize(1600)),
      ("RandomAllocation(250), one pass", plan.RandomAllocation(250)),
  ]
  rows = []
  for name, stage in stages:
    p = plan.SamplingPlan((stage, plan.FixedSize(5), plan.FixedSize(2)))
    g = accounting.guarantee(
        h, p, m, steps=250, delta=1e-6, level="participant"
    )
    rows.append((name, g.epsilon, g.direction))
  return Table(("tasks drawn by", "ε", "larger direction"), tuple(rows))


def moments() -> Table:
  """The moments accountant in [M]'s setting, beside what [M] prints."""
  rows = []
  for z, printed in ((1.0, 1.5), (2.0, 0.34), (3.0, 0.23)):

    def found(accountant, z=z):
      return accounting.epsilon(
          1.0, 0.004, 1 / z, steps=250, delta=1e-6, accountant=accountant
      )

    rows.append((
        z, printed, found(_moments(256)), found(_moments(64)), found("rdp"),
        found("pld"),
    ))
  return Table(
      ("z", "[M] prints", "moments, λ ≤ 256", "moments, λ ≤ 64", "rdp", "pld"),
      tuple(rows),
  )


def _moments(max_order: int):
  from episodic_dp.accounting.accountants import rdp as moments_lib

  return moments_lib.Moments(max_order=max_order)


# Clusters and recurring records -----------------------------------------------


def clusters() -> Table:
  """Records of patients of hospitals, when a hospital's sum moves further."""
  levels = ("hospital", "patient", "record")
  # Small enough to enumerate.
  h = plan.Hierarchy.from_sizes([[2, 2], [2, 2, 2]], levels=levels)
  p = plan.SamplingPlan(
      (plan.FixedSize(1), plan.FixedSize(2), plan.FixedSize(1))
  )
  m = plan.Mechanism(clip_unit="patient", noise_multiplier=2.0)
  drawn = exact.pair(h, p, 2, 0)
  (kind,) = accounting.kinds(h, p, m, "record")

  def gradient(patient):  # The other hospital lies opposite.
    if patient[1] > 1:
      return -1.0
    return 1.0 if exact.holds(patient, 2, 0) or patient[1] == 1 else -1.0

  assert isinstance(kind, accounting.Amplification)
  rows: list[tuple[Cell, ...]] = []
  for epsilon in (0.1, 0.5):
    rows.append(_cluster_row(
        "2 hospitals of 2 and 3 patients, z = 2", kind, "remove", epsilon,
        exact.divergences(drawn, 1, gradient, epsilon, 2.0)["remove"],
    ))
  # Ten of twenty patients in every tenth hospital, clipped per patient, z = 1:
  # outputs on one line, by integrating their mixture.
  kind = accounting.Amplification((0.1, 0.5), 0.5, (20.0, 2.0), 2.0)
  for direction, epsilon in (("remove", 0.5), ("add", 0.2)):
    rows.append(_cluster_row(
        "10 of 20 patients, 1 of 10 hospitals, z = 1", kind, direction,
        epsilon, _on_a_line(kind, direction, epsilon),
    ))
  return Table(
      ("record of", "direction", "ε", "exact δ", "bound",
       "if a hospital moved the sum by 2C"),
      tuple(rows),
  )


def _cluster_row(name, kind, direction, epsilon, truth) -> tuple[Cell, ...]:
  at = np.asarray([epsilon])
  naive = dataclasses.replace(
      kind, outer_distances=(kind.own_distance,) * len(kind.outer_rates)
  )
  return (
      name, direction, epsilon, truth,
      float(kind.divergence(at, direction)[0]),
      float(naive.divergence(at, direction)[0]),
  )


def _on_a_line(kind, direction, epsilon: float) -> float:
  """The divergence when all outputs lie on one line, on one side."""
  q, p = kind.parent_rate, kind.rate
  with_it, without_it = 0.0, -kind.own_distance
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


def recurrence() -> Table:
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
  return Table(
      ("direction", "exact δ(0.1)", "number of tasks with the class revealed",
       "marginal count of the image (not valid)"),
      tuple(rows),
  )


# What the noise does not cover ------------------------------------------------


def percentile_clipping() -> Table:
  """C from raw norms: one small task more, and the noise itself shrinks.

  20 scalar tasks a step, all of them used, 18 of gradient 0.001 and two of
  gradient 1, and the 90th percentile of their norms clips the next step, which
  adds noise of z times that. Its release alone is compared, without sampling.
  """
  small, large = 0.001, 1.0
  without = [small] * 18 + [large] * 2
  rows: list[tuple[Cell, ...]] = []
  for z in (1.0, 10.0, 100.0):
    outputs = []
    for gradients in ([*without, small], without):
      clip = float(np.percentile(gradients, 90))
      total = sum(min(g, clip) for g in gradients)
      outputs.append((total, z * clip))
    rows.append((
        z,
        f"{outputs[1][1] / z:.4g}", f"{outputs[0][1] / z:.4g}",
        *(
            _normals(outputs[0], outputs[1], epsilon)
            for epsilon in (1.0, 3.0)
        ),
        # Two steps of the Gaussian mechanism of sensitivity C: what is claimed.
        *(_gaussian(math.sqrt(2) / z, epsilon) for epsilon in (1.0, 3.0)),
    ))
  return Table(
      ("z", "C without t", "C with t", "exact δ(1)", "exact δ(3)",
       "claimed δ(1)", "claimed δ(3)"),
      tuple(rows),
  )


def second_order() -> Table:
  """The outer gradient of second order reads the support set un-noised.

  One parameter at φ = 0. The support loss is s θ² / 2 with s = 2 / (inner
  rate) when t is in the support set and 0 otherwise: its gradient at 0 is 0, so
  the noised inner step does not depend on t at all. The outer gradient of every
  query example is (1 - rate · s) times a constant above C: it changes its sign
  with t. 15 query examples, clipped to C each, noise z C on their sum.
  """
  queries = 15
  rows = []
  for z in (1.0, 4.0, 16.0):
    moved = 2 * queries / z
    rows.append((
        z, *(_gaussian(moved, epsilon) for epsilon in (1.0, 3.0)),
        *(_gaussian(1 / z, epsilon) for epsilon in (1.0, 3.0)),
    ))
  return Table(
      ("z, inner and outer", "exact δ(1)", "exact δ(3)",
       "claimed δ(1), one noised inner step", "claimed δ(3)"),
      tuple(rows),
  )


def _gaussian(distance: float, epsilon: float) -> float:
  """H_alpha(N(distance) || N(0)) of standard deviation 1."""
  at = np.asarray([epsilon])
  value = float(amplification.hockey_stick(at, distance)[0])
  return max(value, 5e-324)  # Positive, however small.


def _normals(
    p: tuple[float, float], q: tuple[float, float], epsilon: float
) -> float:
  """H_alpha between normal distributions (mean, deviation), p the narrower."""
  (a, s), (b, r) = p, q
  # ln p - ln q - epsilon is a parabola that opens downwards.
  roots = np.sort(np.roots([
      0.5 / r**2 - 0.5 / s**2,
      a / s**2 - b / r**2,
      0.5 * (b / r) ** 2 - 0.5 * (a / s) ** 2 + math.log(r / s) - epsilon,
  ]).real)
  inside = [np.diff(special.ndtr((roots - m) / d))[0] for m, d in (p, q)]
  return float(inside[0] - math.exp(epsilon) * inside[1])


# The command ------------------------------------------------------------------


TABLES: dict[str, Callable[[], Table]] = {
    "inclusion": inclusion,
    "theorem3": theorem3,
    "composition": composition,
    "clusters": clusters,
    "recurrence": recurrence,
    "two_steps": two_steps,
    "samplers": samplers,
    "moments": moments,
    "percentile_clipping": percentile_clipping,
    "second_order": second_order,
}


def tables() -> dict[str, Table]:
  """Every table, by name."""
  return {name: table() for name, table in TABLES.items()}


def as_json(found: dict[str, Table]) -> str:
  """Columns and rows of every table, numbers as computed."""
  data = {name: dataclasses.asdict(table) for name, table in found.items()}
  return json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False)


def filled(text: str, found: dict[str, Table]) -> str:
  """The README with these tables in place of its own.

  Raises:
    ValueError: a table has no place, or a place no table.
  """
  places = re.findall(r"<!-- errata: (\w+) -->", text)
  if sorted(places) != sorted(found):
    raise ValueError(
        f"the tables {sorted(found)} and the places {sorted(places)} of the"
        " README differ: mark each place with <!-- errata: NAME --> and an"
        " empty line"
    )
  for name, table in found.items():
    before = f"<!-- errata: {name} -->\n\n"
    start = text.index(before) + len(before)
    end = start
    while text[end : end + 1] == "|":
      end = text.index("\n", end) + 1
    shown = table.markdown() + "\n" + ("" if end > start else "\n")
    text = text[:start] + shown + text[end:]
  return text


def main(argv: Sequence[str]) -> None:
  del argv
  found = tables()
  if flags.FLAGS.write:
    text = README.read_text(encoding="utf-8")
    files.write_text(README, filled(text, found))
  if flags.FLAGS.format == "json":
    print(as_json(found))
    return
  for name, table in found.items():
    print(f"{name}\n\n{table.markdown()}\n")


if __name__ == "__main__":  # Flags here, so that tests can import the tables.
  flags.DEFINE_enum(
      "format", "markdown", ("markdown", "json"), "How the tables are printed."
  )
  flags.DEFINE_bool(
      "write", False, "Replace the tables of accounting/README.md by these."
  )
  app.run(main)

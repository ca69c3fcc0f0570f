"""Tables of supported and refused plans, computed by the accountant.

Every row of the matrix is a plan on a small example hierarchy. Every cell is
the result of `guarantee` for it: an epsilon, or the refusal. Nothing is listed
by hand, so the matrix cannot promise anything that the code does not do.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
import itertools
import math
import pathlib
from typing import Any

from episodic_dp import plan as plan_lib
from episodic_dp.accounting.guarantee import ACCOUNTANTS
from episodic_dp.accounting.guarantee import guarantee
from episodic_dp.accounting.report import Guarantee
from episodic_dp.accounting.report import Relation
from episodic_dp.accounting.report import RELATIONS
from experiments.evidence import pages

FILE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "support.md"


def one_stage() -> pages.Section:
  """Test records from a list."""
  return _section(
      "One stage",
      "Records sampled from one list, each its own clip unit.",
      plan_lib.Hierarchy.regular((64,), levels=("record",)),
      [(first,) for first in _primary(8)],
      [("record", "record", {})],
      plan_lib.SamplingPlan,
  )


def any_tree() -> pages.Section:
  """Test plans without an episode."""
  return _section(
      "Sampled and accounted only",
      "No episode: any tree of partitions, any level as clip unit.",
      _TREE, _any_stages(), [(level, level, {}) for level in _TREE.levels],
      plan_lib.SamplingPlan,
  )


def users() -> pages.Section:
  """Test users of example-level training."""
  return _section(
      "Users whose examples are sampled and clipped one by one",
      "No episode: an example and its user have a guarantee from one run.",
      plan_lib.Hierarchy.regular((64, 32), levels=("user", "example")),
      [(first, plan_lib.Poisson(0.1)) for first in _primary(8)],
      [("example", "example", {})],
      plan_lib.SamplingPlan,
  )


def unit() -> pages.Section:
  """Test episodes that are primary units."""
  some, poisson = plan_lib.FixedSize(4), plan_lib.Poisson(0.1)
  return _section(
      'Tasks are participants (`form="unit"`)',
      "Each sampled participant is one task: its classes, their examples.",
      _TREE,
      [
          *((first, some, _EXAMPLES) for first in _primary(8)),
          (poisson, plan_lib.All(), _EXAMPLES),
          (poisson, some, plan_lib.All()),
          (poisson, plan_lib.Poisson(0.5), _EXAMPLES),
      ],
      [("participant", "participant", {}), ("class", "class", {}), *_INSIDE],
      _tasks("unit", every=8),
  )


def disjoint() -> pages.Section:
  """Test episodes cut from sampled classes."""
  return _section(
      'Tasks cut from sampled classes (`form="disjoint"`)',
      "Classes are sampled from one pool and cut into tasks of four.",
      _POOL,
      [
          *((first, _EXAMPLES) for first in _primary(16)),
          (plan_lib.FixedSize(16), plan_lib.All()),
      ],
      _OF_CLASSES,
      _tasks("disjoint"),
  )


def independent() -> pages.Section:
  """Test episodes that each sample the whole pool."""
  return _section(
      'Every task samples the pool again (`form="independent"`)',
      "Images and classes recur across the four tasks of a step.",
      _POOL, [(first, _EXAMPLES) for first in _primary(4)], _OF_CLASSES,
      _tasks("independent", every=64),
  )


def shared() -> pages.Section:
  """Test synthetic participants without counts."""
  return _shared(
      "Synthetic participants that share images",
      "`copies=True`: the number of copies of an image is not given.", None,
  )


def counted() -> pages.Section:
  """Test synthetic participants with counted holders."""
  return _shared(
      "Synthetic participants that share images, holders counted",
      "`most_copies` says that no class and no image is in more than three.",
      {"class": 3, "image": 3},
  )


def classes_on_top() -> pages.Section:
  """Test classes above the units whose privacy is kept."""
  notes = pages.Notes()
  header: tuple[str, ...] = ()
  rows: list[tuple[pages.Cell, ...]] = []
  crossing: dict[str, Any] = dict(
      copies=True, most_copies={"patient": 3, "image": 1}
  )
  for form, drawn in (("disjoint", 16), ("independent", 4)):
    for suffix, copies in (
        ("", dict[str, Any]()), (", patients cross", crossing)
    ):
      tree = plan_lib.Hierarchy.regular(
          (18, 20, 4), levels=("diagnosis", "patient", "image"), **copies
      )
      for classes, sizes in (
          ("diagnosis", (drawn, 3, 1)), ("patient", (drawn // 4, 4, 3))
      ):
        label = f"task of {classes} units, {form}{suffix}"
        found = _section(
            "", "", tree,
            [tuple(map(plan_lib.FixedSize, sizes))],
            [(label, plan_lib.EPISODE, {})],
            _tasks(form, classes=classes),
            notes,
        )
        header, rows = found.table.columns, [*rows, *found.table.rows]
  return pages.Section(
      "Classes above other units (`classes=`), and levels that cross",
      "Diagnosis > patient > image; if patients cross, one is in up to three"
      " diagnoses, and the guarantee is for the patient in all of them.",
      pages.Table(header, tuple(rows)),
      notes,
  )


SECTIONS: tuple[Callable[[], pages.Section], ...] = (
    one_stage, any_tree, users, unit, disjoint, independent, classes_on_top,
    shared, counted,
)


# Examples ---------------------------------------------------------------------

_TREE = plan_lib.Hierarchy.regular(
    (64, 8, 6), levels=("participant", "class", "image")
)
_POOL = plan_lib.Hierarchy.regular((64, 6), levels=("class", "image"))
_EXAMPLES = plan_lib.FixedSize(3)  # one for support, two for query


def _noisy(order: str) -> dict:
  return dict(
      order=order, inner_steps=1, inner_clip_norm=1.0,
      inner_noise_multiplier=pages.NOISE,
  )


# label, clip unit, other fields of the mechanism
_Clips = list[tuple[str, str, dict]]
_INSIDE: _Clips = [
    ("image", "image", {}),
    ("image, noisy inner steps", "image", _noisy("first")),
    ("image, noisy inner steps, second order", "image", _noisy("second")),
]
_OF_CLASSES: _Clips = [
    ("task", plan_lib.EPISODE, {}), ("class", "class", {}), *_INSIDE
]


def _tasks(
    form: Any, every: int = 4, classes: str | None = None
) -> Callable[..., plan_lib.SamplingPlan]:
  """Return a function: stages -> a plan of 4-way tasks of this form.

  Args:
    form: of the episode.
    every: the way if the stage of the classes samples all of them.
    classes: level of the classes, if it is named.
  """

  def make(stages: Sequence[plan_lib.Stage]) -> plan_lib.SamplingPlan:
    way = every if stages[-2] == plan_lib.All() else 4
    return plan_lib.SamplingPlan(tuple(stages), plan_lib.Episode(
        way=way, shot=1, query=5 if stages[-1] == plan_lib.All() else 2,
        form=form, tasks=4 if form == "independent" else None, classes=classes,
    ))

  return make


def _shared(
    title: str, text: str, most_copies: Mapping[str, int] | None
) -> pages.Section:
  hierarchy = plan_lib.Hierarchy.regular(
      _TREE.sizes or (), levels=_TREE.levels, copies=True,
      most_copies=most_copies,
  )
  return _section(
      title, text, hierarchy,
      [(first, plan_lib.FixedSize(4), _EXAMPLES) for first in _primary(8)],
      [("participant", "participant", {}), _INSIDE[1]],
      _tasks("unit"),
  )


def _primary(n: int) -> list[plan_lib.Stage]:
  """Return every way to sample primary units."""
  return [
      plan_lib.FixedSize(n), plan_lib.Poisson(0.1), plan_lib.All(),
      plan_lib.RandomAllocation(pages.STEPS),
  ]


def _any_stages() -> list[tuple[plan_lib.Stage, ...]]:
  """Return three stages: every first one over equal ones, and mixtures."""
  fixed, poisson = plan_lib.FixedSize(3), plan_lib.Poisson(0.5)
  every = plan_lib.All()
  plans: list[tuple[plan_lib.Stage, ...]] = []
  for first in _primary(8):
    plans += [(first, fixed, fixed), (first, poisson, poisson)]
  return [
      *plans,
      (every, every, every),
      (every, every, fixed),
      (plan_lib.Poisson(0.1), fixed, poisson),
      (plan_lib.FixedSize(8), poisson, plan_lib.RandomAllocation(pages.STEPS)),
  ]


def _section(
    title: str, text: str, hierarchy: plan_lib.Hierarchy,
    all_stages: list, clips: _Clips,
    make: Callable[..., plan_lib.SamplingPlan],
    notes: pages.Notes | None = None,
) -> pages.Section:
  columns = [*itertools.product(RELATIONS, hierarchy.levels)]
  header = ["stages", "clip unit"]
  for relation, level in columns:
    if relation == "replace-one":
      level += ", replace-one"
    header.append(level)
  notes, rows = notes or pages.Notes(), []
  for stages in all_stages:
    for label, unit, fields in clips:
      mechanism = plan_lib.Mechanism(
          clip_unit=unit, noise_multiplier=pages.NOISE, **fields
      )
      cells = [" > ".join(type(stage).__name__ for stage in stages), label]
      for relation, level in columns:
        answers = {}
        for name in ACCOUNTANTS:
          answers[name] = _ask(
              hierarchy, functools.partial(make, stages), mechanism, level,
              relation, name,
          )
        cells.append(cell(answers, notes))
      rows.append(tuple(cells))
  table = pages.Table(tuple(header), tuple(rows))
  return pages.Section(title, text, table, notes)


def _ask(
    hierarchy: plan_lib.Hierarchy,
    make: Callable[[], plan_lib.SamplingPlan],
    mechanism: plan_lib.Mechanism,
    level: str,
    relation: Relation,
    accountant: str,
) -> Guarantee | pages.Refusal:
  """Return a finite epsilon, or the refusal."""
  try:
    found = guarantee(
      plan_lib.Release(hierarchy, make(), mechanism),
      steps=pages.STEPS,
      delta=pages.DELTA,
      level=level,
      accountant=accountant,
      neighbours=relation,
    )
  except pages.REFUSALS as e:
    return pages.Refusal.of(e)
  if not math.isfinite(found.epsilon):
    return pages.Refusal("epsilon is infinite at the example's noise", False)
  return found


def cell(
    answers: Mapping[str, Guarantee | pages.Refusal], notes: pages.Notes
) -> str:
  """Return the answers of the accountants, by name, for one plan and unit."""
  found, refused = [], []
  for name, answer in answers.items():
    if isinstance(answer, pages.Refusal):
      refused.append(answer)
    else:
      found.append(name)
  if not found:
    return notes.verdict(*refused)
  if not refused:
    return "ε"
  return f"ε by {', '.join(found)} {notes.numbers(*refused)}"


# The page ---------------------------------------------------------------------

_HEAD = """# Support matrix

After this page you know which sampling plans have a privacy guarantee, for
which clip units and privacy units. Written by

```sh
python -m experiments.evidence --only=support --write
```

which asks `accounting.guarantee` for every cell, on small example hierarchies;
a test compares this file with the code. [learners.md](learners.md) lists the
learners that can be trained under these plans.

- **ε**: each accountant ({names}) has a guarantee. Compare it with
  `accounting.lower_bound`, the exact loss of a data set that the plan allows.
- **ε by** some: the other accountants have no bound.
- `rdp` and `moments` count rare events in full. Where a step may draw many clip
  units of one unit (records with many holders, users with many examples, many
  tasks from one pool) their values hold, but can be orders of magnitude above
  those of `pld`.
- **no**: no proof is known; `UnsoundPlanError` names the rule.
- **–**: the parts do not fit together; `PlanError` says why.

Numbers refer to the sentences below each table. Columns are privacy units.
Neighbours differ by adding or removing one unit, or by replacing one where a
column says so.
"""


def document() -> str:
  """Write the whole page."""
  names = ", ".join(f"`{name}`" for name in ACCOUNTANTS)
  return "\n".join([
      _HEAD.format(names=names), *(make().markdown() for make in SECTIONS)
  ])

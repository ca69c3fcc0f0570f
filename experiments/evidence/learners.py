"""What can be trained privately, found by asking the code for each combination.

Four tables, each with the refusals that it met.
"""

from collections.abc import Iterable, Sequence
import pathlib

from episodic_dp import learners
from episodic_dp import plan as plan_lib
from experiments.evidence import cases
from experiments.evidence import pages

FILE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "learners.md"

# (learner, clip unit, primary stage, norm) -> answer.
Answers = dict[
    tuple[cases.Variant, cases.Unit, plan_lib.Stage, str], cases.Answer
]

_HEAD = """# Learners and clipping

After this page you know which combinations of learner, network and clipping can
be trained privately. Written by

```sh
python -m experiments.evidence --only=learners --write
```

which asks `private.make_meta_step` and `accounting.guarantee` for every cell,
on small data and a narrow Conv4; a test compares this file with the code. The
[support matrix](support.md) has more plans and replace-one neighbours.

- **sound**: the step is made, and the levels that the second table names have a
  finite ε.
- **no**: no proof is known; `UnsoundPlanError` names the rule.
- **–**: the parts do not fit together; the error says why.

`batch`, `group` and `none` are norms of the network; a cell without them holds
for all three. Numbers refer to the sentences below each table. Neighbours
differ by adding or removing one unit.
"""


def ask_all() -> Answers:
  """Every learner, clip unit, primary stage and norm."""
  return {
      (variant, unit, first, norm): cases.ask(variant, norm, unit, first)
      for variant in cases.variants()
      for unit in cases.units()
      for first in cases.SAMPLERS
      for norm in cases.NORMS
  }


def document() -> str:
  """The whole page."""
  answers = ask_all()
  return "\n".join([
      _HEAD,
      learners_table(answers).markdown(),
      samplers_table(answers).markdown(),
      clippings_table(answers).markdown(),
      descriptions_table().markdown(),
  ])


def _notes() -> pages.Notes:
  """Notes in which a learner's name is not part of a rule."""
  return pages.Notes(v.kind.__name__ for v in cases.variants())


# Learners ---------------------------------------------------------------------


def learners_table(answers: Answers) -> pages.Section:
  """Learner by clip unit; equal columns are one."""
  notes = _notes()
  columns: dict[tuple[str, ...], list[str]] = {}
  for unit in cases.units():
    stages = [f for f in cases.SAMPLERS if _sound(answers, unit, f)]
    if stages:
      cells = tuple(
          _fates(answers, variant, unit, stages, notes)
          for variant in cases.variants()
      )
      columns.setdefault(cells, []).append(unit.label)
  labels = [variant.label for variant in cases.variants()]
  return _section(
      "Learners and clip units",
      "Columns are clip units, with the form of the episode in parentheses. A"
      " cell holds for every sampler of the next table unless it names some.",
      ["learner", *map(", ".join, columns.values())],
      zip(labels, *columns),
      notes,
  )


def _sound(
    answers: Answers, unit: cases.Unit, first: plan_lib.Stage
) -> list[cases.Answer]:
  """What is protected with this clip unit and primary stage, by learners."""
  return [
      answer
      for (_, *key, _), answer in answers.items()
      if key == [unit, first] and answer.protected
  ]


def _fates(
    answers: Answers,
    variant: cases.Variant,
    unit: cases.Unit,
    stages: Sequence[plan_lib.Stage],
    notes: pages.Notes,
) -> str:
  """What becomes of a learner with each norm, and sampler if they differ."""
  texts = {
      _name(first): _of_norms(
          {n: answers[variant, unit, first, n] for n in cases.NORMS}, notes
      )
      for first in stages
  }
  if len(set(texts.values())) == 1:
    return next(iter(texts.values()))
  return "; ".join(f"{name}: {text}" for name, text in texts.items())


def _of_norms(by_norm: dict[str, cases.Answer], notes: pages.Notes) -> str:
  return _grouped({
      norm: "sound" if a.refusal is None else notes.verdict(a.refusal)
      for norm, a in by_norm.items()
  })


def _grouped(fates: dict[str, str]) -> str:
  """Names of one fate together: "group, none: sound; batch: no (3)"."""
  found = {
      fate: ", ".join(name for name in fates if fates[name] == fate)
      for fate in sorted(fates.values(), key=lambda f: f != "sound")
  }
  if len(found) == 1:
    return next(iter(found))
  return "; ".join(f"{names}: {fate}" for fate, names in found.items())


def descriptions_table() -> pages.Section:
  """What each learner adapts and releases."""
  notes, rows = _notes(), []
  kinds = [entry[0] for entry in learners.LEARNERS.values()]
  kinds.append(learners.Supervised)
  for kind in kinds:
    variant, fates = cases.Variant("", kind, {}), {}
    for norm in cases.NORMS:
      told = learners.describe(variant.build(norm))
      fates[norm] = (
          f"{'yes' if told.transductive else 'no'} {notes.number(told.because)}"
      )
    rows.append([
        kind.__name__,
        told.paper,
        told.adapts,
        told.releases or "nothing: it is not meta-trained",
        _grouped(fates),
    ])
  return _section(
      "The learners",
      "The parameters that a support set adapts, the vector that is clipped and"
      " noised, and whether a query's prediction depends on the other queries"
      " (`learners.describe`).",
      ["learner", "from", "adapts", "releases", "transductive"],
      rows,
      notes,
  )


# Samplers and clipping --------------------------------------------------------


def samplers_table(answers: Answers) -> pages.Section:
  """Clip unit by primary stage: the levels that are protected."""
  notes, rows = _notes(), []
  for unit in cases.units():
    cells = []
    for first in cases.SAMPLERS:
      # Where nobody can train, by the first learner that has the order for it.
      found = _sound(answers, unit, first) or [
          answers[variant, unit, first, "group"]
          for variant in cases.variants()
          if variant.options.get("order") == "first"
      ]
      texts = dict.fromkeys(_levels(answer, notes) for answer in found)
      cells.append("; ".join(texts))
    rows.append([unit.label, *cells])
  return _section(
      "Clip units and samplers",
      "The levels that are protected, by the sampler of primary units, for"
      " learners that are sound in the first table. Lower stages are"
      " `FixedSize`.",
      ["clip unit", *map(_name, cases.SAMPLERS)],
      rows,
      notes,
  )


def _levels(answer: cases.Answer, notes: pages.Notes) -> str:
  if answer.refusal is not None:
    return notes.verdict(answer.refusal)
  return ", ".join(
      f"{level} {notes.verdict(found)}"
      if isinstance(found, pages.Refusal)
      else level
      for level, found in answer.levels.items()
  )


def clippings_table(answers: Answers) -> pages.Section:
  """How the clip norm is set, by clip unit: epsilon, or none."""
  notes = _notes()
  kinds = [(kind, by) for kind in cases.CLIPPINGS for by in cases.CLIP_BY]
  columns: dict[str, list[str]] = {}
  for unit in cases.units():
    keys = [key for key in answers if key[1] is unit and answers[key].protected]
    if not keys:
      continue
    variant, _, first, norm = keys[0]
    found = (
        cases.ask(
            variant, norm, unit, first,
            clipping=kind, clip_by=by, **cases.CLIPPINGS[kind],
        )
        for kind, by in kinds
    )
    columns[unit.label] = [_epsilon(a, unit, notes) for a in found]
  labels = [f"{kind}, {by}" for kind, by in kinds]
  return _section(
      "How the clip norm is set",
      "For the first sound combination of each clip unit, the ε of its level,"
      " or of the class where tasks are groups of classes,"
      f" after {pages.STEPS} steps with noise multiplier {pages.NOISE:g} at δ ="
      f" {pages.DELTA:g}. `global` clips the whole gradient, `layer` each"
      " array.",
      ["clipping", *columns],
      zip(labels, *columns.values()),
      notes,
  )


def _epsilon(answer: cases.Answer, unit: cases.Unit, notes: pages.Notes) -> str:
  if answer.refusal is None:
    protected = answer.protected
    level = unit.clip_unit if unit.clip_unit in protected else "class"
    return f"ε = {protected[level]:.3g}"
  if answer.training is None:  # A step is made, and nothing is promised.
    return f"no formal guarantee {notes.number(answer.refusal.sentence)}"
  return notes.verdict(answer.refusal)


def _name(first: plan_lib.Stage) -> str:
  return type(first).__name__


def _section(
    title: str,
    text: str,
    header: Iterable[str],
    rows: Iterable[Iterable[str]],
    notes: pages.Notes,
) -> pages.Section:
  table = pages.Table(tuple(header), tuple(tuple(row) for row in rows))
  return pages.Section(title, text, table, notes)

"""The answers as Markdown: four tables, each with the refusals that it met."""

from collections.abc import Iterable
import re
import textwrap

from episodic_dp import learners
from episodic_dp import plan as plan_lib
from experiments.evidence import plans
from experiments.evidence.learners import asking
from experiments.evidence.learners import cases

# (learner, clip unit, primary stage, norm) -> answer.
Answers = dict[
    tuple[cases.Variant, cases.Unit, plan_lib.Stage, str], asking.Answer
]

_HEAD = """# What can be trained privately

Written by

```sh
python -m experiments.evidence.write_learners --write
```

which asks `private.make_meta_step` and `accounting.guarantee` for every cell,
on small data and a narrow Conv4; a test compares this file with what the code
answers today. [support.md](support.md) has more plans, every accountant and
replace-one neighbours; here are the learner, its network and its clipping.

- **sound**: the step is made, and the levels that the second table names for
  the clip unit and the sampler have a finite ε.
- **no**: no proof is known; `UnsoundPlanError` names the rule.
- **–**: the parts do not fit together; the error says why.

`batch`, `group` and `none` are norms of the network; a cell without them is the
same for all three. Numbers refer to the sentences below each table, which are
those of the first combination that met them. Neighbours differ by adding or
removing one unit.
"""


def ask_all() -> Answers:
  """Every learner, clip unit, primary stage and norm."""
  return {
      (variant, unit, first, norm): asking.ask(variant, norm, unit, first)
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
      learners_table(answers),
      samplers_table(answers),
      clippings_table(answers),
      descriptions_table(),
  ])


class Notes:
  """Numbered sentences below a table; refusals of one rule share a number."""

  def __init__(self) -> None:
    self._found: dict[tuple[str, bool], tuple[int, str]] = {}

  def number(self, sentence: str, rule: str = "", unsound: bool = True) -> str:
    """ "(3)"; the sentence is the first of its rule."""
    key = (rule or sentence, unsound)
    number, _ = self._found.setdefault(key, (len(self._found) + 1, sentence))
    return f"({number})"

  def refusal(self, refusal: plans.Refusal) -> str:
    """ "no (3)" or "– (3)"."""
    rule = _NAMES.sub("…", refusal.rule)
    number = self.number(refusal.sentence, rule, refusal.unsound)
    return f"{'no' if refusal.unsound else '–'} {number}"

  def lines(self) -> list[str]:
    return [
        f"{number}. {'' if unsound else '(–) '}{sentence}"
        for (_, unsound), (number, sentence) in self._found.items()
    ]


# A learner's name at the beginning of a sentence is no rule of its own.
_NAMES = re.compile(
    "|".join(rf"\b{v.kind.__name__}\b" for v in cases.variants())
)


# Learners ---------------------------------------------------------------------


def learners_table(answers: Answers) -> str:
  """Learner by clip unit; equal columns are one."""
  notes = Notes()
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
      "What has one clipped gradient, by learner. The forms of an episode stand"
      " in parentheses; samplers are those of the next table, alike unless a"
      " cell names them.",
      ["learner", *map(", ".join, columns.values())],
      zip(labels, *columns),
      notes,
  )


def _sound(answers, unit, first) -> list[asking.Answer]:
  """What is protected with this clip unit and primary stage, by learners."""
  return [
      answer
      for (_, *key, _), answer in answers.items()
      if key == [unit, first] and answer.protected
  ]


def _fates(answers, variant, unit, stages, notes) -> str:
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


def _of_norms(by_norm: dict[str, asking.Answer], notes: Notes) -> str:
  return _grouped({
      norm: "sound" if a.refusal is None else notes.refusal(a.refusal)
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


def descriptions_table() -> str:
  """What each learner adapts and releases."""
  notes, rows = Notes(), []
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
      "What the learners are",
      "What a support set changes, what of a clip unit is clipped and noised,"
      " and whether one query's prediction depends on the other queries"
      " (`learners.describe`).",
      ["learner", "from", "adapts", "releases", "transductive"],
      rows,
      notes,
  )


# Samplers and clipping --------------------------------------------------------


def samplers_table(answers: Answers) -> str:
  """Clip unit by primary stage: the levels that are protected."""
  notes, rows = Notes(), []
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
      "How primary units are drawn, and the levels that are protected then, by"
      " the learners that are sound in the first table. Stages below are"
      " `FixedSize`.",
      ["clip unit", *map(_name, cases.SAMPLERS)],
      rows,
      notes,
  )


def _levels(answer: asking.Answer, notes: Notes) -> str:
  if answer.refusal is not None:
    return notes.refusal(answer.refusal)
  return ", ".join(
      f"{level} {notes.refusal(found)}"
      if isinstance(found, plans.Refusal)
      else level
      for level, found in answer.levels.items()
  )


def clippings_table(answers: Answers) -> str:
  """How the clip norm is set, by clip unit: epsilon, or none."""
  notes = Notes()
  kinds = [(kind, by) for kind in cases.CLIPPINGS for by in cases.CLIP_BY]
  columns: dict[str, list[str]] = {}
  for unit in cases.units():
    keys = [key for key in answers if key[1] is unit and answers[key].protected]
    if not keys:
      continue
    variant, _, first, norm = keys[0]
    found = (
        asking.ask(
            variant, norm, unit, first,
            clipping=kind, clip_by=by, **cases.CLIPPINGS[kind],
        )
        for kind, by in kinds
    )
    columns[unit.label] = [_epsilon(a, unit, notes) for a in found]
  labels = [f"{kind}, {by}" for kind, by in kinds]
  return _section(
      "How the clip norm is set",
      "For the first sound combination of each clip unit, the ε of the level"
      " that it names, or of the class where tasks are groups of classes,"
      f" after {cases.STEPS} steps with noise multiplier {cases.NOISE:g} at δ ="
      f" {asking.DELTA:g}. `global` clips the whole gradient, `layer` each"
      " array.",
      ["clipping", *columns],
      zip(labels, *columns.values()),
      notes,
  )


def _epsilon(answer: asking.Answer, unit: cases.Unit, notes: Notes) -> str:
  if answer.refusal is None:
    protected = answer.protected
    level = unit.clip_unit if unit.clip_unit in protected else "class"
    return f"ε = {protected[level]:.3g}"
  if answer.training is None:  # A step is made, and nothing is promised.
    return f"no formal guarantee {notes.number(answer.refusal.sentence)}"
  return notes.refusal(answer.refusal)


# As Markdown ------------------------------------------------------------------


def _name(first: plan_lib.Stage) -> str:
  return type(first).__name__


def _section(
    title: str,
    text: str,
    header: Iterable[str],
    rows: Iterable[Iterable[str]],
    notes: Notes,
) -> str:
  header = list(header)
  table = [header, ["---"] * len(header), *rows]
  lines = [f"| {' | '.join(cells)} |" for cells in table]
  parts = (f"## {title}", textwrap.fill(text, 80), "\n".join(lines))
  return "\n\n".join([*parts, "\n".join(notes.lines())]) + "\n"

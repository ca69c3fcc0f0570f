"""Reports of a run: its privacy statement, summary and pictures."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import os
import textwrap
from typing import Any, TypeAlias

import numpy as np

from episodic_dp import accounting
from episodic_dp.accounting import report
from episodic_dp.accounting import statement as statement_lib
from episodic_dp.output import files
from episodic_dp.output import plotting
from episodic_dp.plan import validation
from episodic_dp.training import evaluation
from episodic_dp.training import workdir as workdir_lib

GUARANTEE = statement_lib.FILE
EVALUATION = "evaluation.json"  # Written by episodic-dp evaluate.
LEARNING_CURVE = "learning_curve.png"
EPSILON_CURVE = "epsilon_curve.png"
_MOST_USEFUL = 10  # Above it an epsilon is commonly judged to protect little.
_LEAST_FILLED = 0.75  # Below this share of tasks it is worth a line.
_FEW = 200  # Units of privacy: see docs/choosing.md.
_WIDTH = 72  # Characters of a caveat above a picture.

Guarantees: TypeAlias = Mapping[str, accounting.Guarantee]  # By level.


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Result:
  """The outcome of `train`; printed, it is the summary of the run.

  Attributes:
    steps: steps done in all, including earlier processes.
    planned: steps of the whole run.
    stopped: "done", or the reason of a stop: "SIGTERM", "SIGUSR1", "SIGINT" or
      "time limit".
    guarantees: level -> Guarantee for the steps done; for the whole run if no
      step was done.
    seconds: wall-clock seconds of this process inside `train`, which depend on
      the numbers of sampled tasks: publish none of a run on private data.
    score: the last validation accuracy or squared error, or None.
    untrained: that of the initial parameters, or None.
    privacy_unit: the level that the run protects, or None.
    units: the number of its training units, or None.
    filled: the share of the sampled tasks that lack no class or example.
    started: whether the initial parameters are a public start.
    proposed: whether `episodic-dp plan` compares such steps.
  """

  steps: int
  planned: int
  stopped: str
  guarantees: Guarantees
  seconds: float
  score: evaluation.Score | None = None
  untrained: evaluation.Score | None = None
  unproved: tuple[str, ...] = ()
  privacy_unit: str | None = None
  units: int | None = None
  filled: float = 1.0
  started: bool = False
  proposed: bool = False

  def __repr__(self) -> str:
    names = {"SIGINT": "Ctrl-C", "time limit": "its time limit"}
    how = f"done after step {self.steps}"
    if self.stopped != "done":
      how = (
          f"stopped by {names.get(self.stopped, self.stopped)} after step"
          f" {self.steps} of {self.planned}; the same command resumes from"
          " there"
      )
    lines = [how]
    if self.score is not None:
      line = f"  validation {words(self.score.name)} {self.score}"
      if self.untrained is not None:
        line += f"; {initial(self.started)} {self.untrained}"
      lines.append(line)
    if not self.steps:
      lines.append(
          "  no step was taken and nothing spent; the whole run spends"
      )
    lines += guarantee_lines(
        self.guarantees, self.steps or self.planned, self.unproved
    )
    return "\n".join([*lines, *self.warnings])

  @property
  def warnings(self) -> list[str]:
    """Return a line for each reason not to use the model as it is."""
    found = []
    before, after = self.untrained, self.score
    if self.steps and before is not None and after is not None:
      both = math.hypot(before.high - before.low, after.high - after.low) / 2
      if after.sign * (after.mean - before.mean) <= both:
        last = "or public weights to start from"
        if self.proposed:
          last = (
              "public weights to start from or the settings that episodic-dp"
              " plan proposes"
          )
        found.append(
            "  Training shows no gain over the model before it"
            f" ({initial(self.started)}), which costs no privacy. More units, a"
            f" larger epsilon, {last} may help."
        )
    if self.filled < _LEAST_FILLED:
      found.append(
          f"  {validation.lacking(self.filled)}: give more data of each unit,"
          " or a smaller way, shot or query."
      )
    if self.units is not None and self.units < _FEW:
      found.append(
          f"  The run protects only these units of level '{self.privacy_unit}':"
          f" {self.units}. With fewer than {_FEW} a small epsilon leaves hardly"
          " any signal (docs/choosing.md)."
      )
    unit = self.guarantees.get(self.privacy_unit or "")
    if unit is not None and _MOST_USEFUL < unit.epsilon < math.inf:
      found.append(
          f"  An epsilon above {_MOST_USEFUL} hardly protects one {unit.level}:"
          " the noise for a smaller one, such as 2, is computed from it."
      )
    return found


def initial(started: bool) -> str:
  """Return the word for a model before its first step."""
  if started:
    return "public start"
  return "untrained"


def guarantee_lines(
    guarantees: Guarantees, steps: int, unproved: Sequence[str] = ()
) -> list[str]:
  """Return a line per level, as printed at the end of a run.

  Args:
    guarantees: level -> guarantee.
    steps: the number of steps that they cover.
    unproved: the levels that have none.
  """
  lines = []
  width = max(map(len, (*guarantees, *unproved)), default=0)
  for level, g in guarantees.items():
    if math.isinf(g.epsilon):
      why = ""
      if report.NO_NOISE in g.assumptions:
        why = " (no noise)"
      lines.append(f"  {level:<{width}}  no formal guarantee{why}")
    else:
      lines.append(
          f"  {level:<{width}}  epsilon = {report.rounded_up(g.epsilon)} at"
          f" delta = {report.rounded_delta(g.delta)} after step {steps}"
          f" ({g.neighbours})"
      )
  lines += [
      f"  {level:<{width}}  no guarantee (why: no_guarantee in {GUARANTEE})"
      for level in unproved
  ]
  # Each only once, however many levels share it.
  for caveat in dict.fromkeys(g.caveat for g in guarantees.values()):
    levels = [k for k, g in guarantees.items() if g.caveat == caveat]
    if caveat and len(levels) == len(guarantees):
      lines.append(f"  {caveat}")
    elif caveat:
      lines.append(f"  {', '.join(levels)}: {caveat}")
  return lines or ["  no level has a guarantee"]


def words(name: str) -> str:
  """Return the name of a score as words: "squared error"."""
  return name.replace("_", " ")


def statement(workdir: str | os.PathLike) -> Any:
  """Return the privacy statement of a run, None if it has none.

  Raises:
    RunError: the file is damaged.
  """
  file = workdir_lib.folder_of(workdir) / GUARANTEE
  if not file.exists():
    return None
  return files.read_json(file, "resume the run, which writes it again")


def guarantees(
    workdir: str | os.PathLike, *fields: str
) -> dict[str, Mapping[str, Any]]:
  """Return level -> fields of its stated guarantee; {} without a statement.

  An infinite epsilon is the string "inf".

  Args:
    workdir: the folder of the run.
    *fields: names of fields of `accounting.Guarantee.as_dict`.
  """
  levels = (statement(workdir) or {"guarantees": {}})["guarantees"]
  return {
      level: {field: stated[field] for field in fields}
      for level, stated in levels.items()
  }


# Pictures --------------------------------------------------------------------


@plotting.styled
def learning_curve(
    path: str | os.PathLike,
    found: Sequence[Mapping[str, float]],
    tasks: evaluation.Tasks,
) -> None:
  """Plot a score on public validation tasks over steps, with its intervals.

  Args:
    path: the PNG.
    found: "step", "mean", "low" and "high" of each validation; accuracies are
      fractions of 1.
    tasks: the validation tasks.
  """
  way, shot = tasks.episode.way, tasks.episode.shot
  title, scale = f"{way}-way {shot}-shot accuracy", 100
  if tasks.targets:
    title, scale = f"Squared error after adapting to {shot} points", 1
  steps = [one["step"] for one in found]
  scores = [(one["mean"], one["low"], one["high"]) for one in found]
  mean, low, high = scale * np.reshape(scores, (-1, 3)).T
  figure = plotting.figure(4.6)
  axes = figure.subplots()
  axes.set_title(
      f"{title}, {len(tasks.rows)} public validation tasks", loc="left"
  )
  look = plotting.series(0) | {"markersize": 3}
  label = "this run, 95 % interval over the tasks"
  axes.plot(steps, mean, label=label, **look)
  # The unbounded interval of a single task has no band.
  axes.fill_between(
      steps, low, high, where=np.isfinite(high),
      color=look["color"], alpha=0.18, linewidth=0,
  )
  plotting.over_steps(axes)
  if tasks.chance is None:
    axes.set_ylabel("validation squared error")
    axes.set_ylim(bottom=0)
  else:
    axes.axhline(100 * tasks.chance, label="chance", **plotting.REFERENCE)
    axes.set_ylabel("validation accuracy (%)")
    axes.set_ylim(0, 100)
  figure.legend(loc="outside lower center", ncols=2)
  plotting.save(figure, path)


@plotting.styled
def epsilon_curve(
    path: str | os.PathLike,
    steps: Sequence[int],
    curves: Mapping[str, Sequence[float]],
    *,
    delta: float,
    caveat: str = "",
) -> None:
  """Plot epsilon of each level over steps, or that no level has a guarantee.

  Args:
    path: the PNG.
    steps: the x values.
    curves: level -> epsilon after these steps.
    delta: delta of all curves.
    caveat: a warning about these epsilons, or "".
  """
  figure = plotting.figure(4.2)
  axes = figure.subplots()
  title = ["What the steps cost, by privacy unit"]
  title += textwrap.wrap(caveat, _WIDTH)
  axes.set_title("\n".join(title), loc="left")
  for level, values in curves.items():
    label = f"one {level}: ε = {report.rounded_up(values[-1])}"
    axes.plot(steps, values, label=label)
  plotting.over_steps(axes)
  if curves:
    axes.set_ylim(bottom=0)
    axes.legend(loc="best")
  else:
    axes.text(
        0.5,
        0.5,
        "no formal guarantee at any step",
        ha="center",
        transform=axes.transAxes,
    )
  axes.set_ylabel(f"ε at δ = {delta:g}")
  plotting.save(figure, path)

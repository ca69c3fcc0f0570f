"""Report of a run: its privacy statement, and sentences about it."""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import math
import os
from typing import Any, TypeAlias

from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp.accounting import report
from episodic_dp.training import evaluation
from episodic_dp.training import workdir as workdir_lib

GUARANTEE = "guarantee.json"
EVALUATION = "evaluation.json"  # What episodic-dp evaluate measured.

Guarantees: TypeAlias = Mapping[str, accounting.Guarantee]  # By level.


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Result:
  """Outcome of `train`; printed, it is the summary of the run.

  Attributes:
    steps: steps done in all, earlier processes included.
    planned: steps of the whole run.
    stopped: "done", or what asked it to stop: "SIGTERM", "SIGUSR1", "SIGINT" or
      "time limit".
    guarantees: level -> Guarantee for the steps done; for those of the whole
      run where none was.
    unproved: the levels for which no guarantee is proved.
    seconds: wall-clock seconds of this process inside `train`.
    score: the last validation accuracy or squared error, or None.
    untrained: that of the initial parameters, or None.
  """

  steps: int
  planned: int
  stopped: str
  guarantees: Guarantees
  seconds: float
  score: evaluation.Score | None = None
  untrained: evaluation.Score | None = None
  unproved: tuple[str, ...] = ()

  def __repr__(self) -> str:
    how = ending(self.steps, self.planned, self.stopped)
    lines = [f"{how} ({self.seconds:.0f} s in this process)"]
    if self.score is not None:
      line = f"  validation {words(self.score.name)} {self.score}"
      if self.untrained is not None:
        line += f"; untrained {self.untrained}"
      lines.append(line)
    if not self.steps:
      lines.append(
          "  no step was taken and nothing spent; the whole run spends"
      )
    lines += guarantee_lines(
        self.guarantees, self.steps or self.planned, self.unproved
    )
    return "\n".join(lines)


def number(value: float) -> float | str:
  """Return a float for strict JSON: infinity becomes the string "inf"."""
  return value if math.isfinite(value) else str(value)


def result_entry(
    result: Result, measured: Mapping[str, Any]
) -> dict[str, Any]:
  """Return a run's steps, accuracies and epsilons, JSON-able.

  Args:
    result: of `loop.train`.
    measured: name -> {"score": evaluation.Score, "steps": list}.
  """
  (kind,) = {value["score"].name for value in measured.values()}
  return {
      "steps": result.steps,
      "seconds": round(result.seconds, 1),
      kind: {
          name: dataclasses.asdict(value["score"])
          for name, value in measured.items()
      },
      "epsilon": {
          level: {
              "epsilon": number(g.epsilon),
              "delta": g.delta,
              "neighbours": g.neighbours,
              "accountant": g.accountant,
          }
          for level, g in result.guarantees.items()
      },
  }


def guarantee_lines(
    guarantees: Guarantees, steps: int, unproved: Sequence[str] = ()
) -> list[str]:
  """Return a sentence per level, as printed at the end of a run.

  Args:
    guarantees: those that there are.
    steps: that they cover.
    unproved: the levels that have none.
  """
  lines = []
  width = max(map(len, (*guarantees, *unproved)), default=0)
  for level, g in guarantees.items():
    if math.isinf(g.epsilon):
      why = " (no noise)" if report.NO_NOISE in g.assumptions else ""
      lines.append(f"  {level:<{width}}  no formal guarantee{why}")
    else:
      lines.append(
          f"  {level:<{width}}  epsilon = {report.rounded_up(g.epsilon)} at"
          f" delta = {g.delta:g} after {steps} steps ({g.neighbours})"
      )
  lines += [
      f"  {level:<{width}}  no guarantee (why: no_guarantee in {GUARANTEE})"
      for level in unproved
  ]
  # Once each, however many levels share one.
  for caveat in dict.fromkeys(g.caveat for g in guarantees.values()):
    levels = [k for k, g in guarantees.items() if g.caveat == caveat]
    of = "" if len(levels) == len(guarantees) else f"{', '.join(levels)}: "
    lines += [f"  {of}{caveat}"] if caveat else []
  return lines or ["  no level has a guarantee"]


def ending(steps: int, planned: int, stopped: str) -> str:
  """Say how a run ended.

  Args:
    steps: done in all.
    planned: the steps of the whole run.
    stopped: as a `Result` has it.
  """
  if stopped == "done":
    return f"done: {steps} steps"
  what = {"SIGINT": "Ctrl-C", "time limit": "its time limit"}
  by = what.get(stopped, stopped)
  return (
      f"stopped by {by} after step {steps} of {planned}; the same command"
      " goes on from there"
  )


def words(name: str) -> str:
  """Return the name of a score in words: "squared error"."""
  return name.replace("_", " ")


def statement(workdir: str | os.PathLike) -> Any:
  """Return the privacy statement of a run, None if it has none.

  Raises:
    RunError: the file is damaged.
  """
  file = workdir_lib.folder_of(workdir) / GUARANTEE
  if not file.exists():
    return None
  try:
    found = json.loads(file.read_text(encoding="utf-8"))
    int(found["planned_steps"])
    for stated in found["guarantees"].values():
      float(stated["epsilon"]), float(stated["delta"])
  except (
      OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError
  ) as e:
    raise errors.RunError(
        f"{file} cannot be read ({type(e).__name__}): resume the run, which"
        " writes it again"
    ) from e
  return found


def guarantees(
    workdir: str | os.PathLike, *fields: str
) -> dict[str, Mapping[str, Any]]:
  """Return level -> fields of its stated guarantee; {} without a statement.

  An infinite epsilon is the string "inf".

  Args:
    workdir: the folder of the run.
    *fields: of `accounting.Guarantee.as_dict`.
  """
  levels = (statement(workdir) or {"guarantees": {}})["guarantees"]
  return {
      level: {field: stated[field] for field in fields}
      for level, stated in levels.items()
  }

"""Report of a run: its privacy statement, and sentences about it."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any, TypeAlias

from episodic_dp import accounting
from episodic_dp.accounting import report
from episodic_dp.training import spec as spec_lib

GUARANTEE = "guarantee.json"
EVALUATION = "evaluation.json"  # What episodic-dp evaluate measured.

Guarantees: TypeAlias = Mapping[str, accounting.Guarantee]  # By level.


def number(value: float) -> float | str:
  """Return a float for strict JSON: infinity becomes the string "inf"."""
  return value if math.isfinite(value) else str(value)


def result_entry(
    result: spec_lib.Result, measured: Mapping[str, Any]
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
  if stopped == "budget":
    return f"done: {steps} steps, all that target_epsilon allows"
  what = {"SIGINT": "Ctrl-C", "time limit": "its time limit"}
  by = what.get(stopped, stopped)
  return (
      f"stopped by {by} after step {steps} of {planned}; the same command"
      " goes on from there"
  )


def summary(result: spec_lib.Result, planned: int) -> str:
  """Describe what `training.train` did.

  Args:
    result: of `loop.train`.
    planned: the steps of the whole run.
  """
  head = ending(result.steps, planned, result.stopped)
  lines = [f"{head} ({result.seconds:.0f} s in this process)"]
  if result.score is not None and result.untrained is not None:
    lines.append(
        f"  validation {words(result.score.name)} {result.score}; of the"
        f" untrained model {result.untrained}"
    )
  if not result.steps:
    lines.append("  no step was taken and nothing spent; the whole run spends")
  lines += guarantee_lines(
      result.guarantees, result.steps or planned, result.unproved
  )
  return "\n".join(lines)


def words(name: str) -> str:
  """Return the name of a score in words: "squared error"."""
  return name.replace("_", " ")

"""A preset trained with and without privacy, otherwise alike.

Leaves DIR/with_privacy, DIR/without_privacy, DIR/results.json and the pictures
of the target, which offers, beside `runs`, CHANCE (the accuracy of a blind
guess, or None) and `finish(outcomes, folder)`, which draws them and returns
what else it has measured: run -> (name, `training.Score`).
"""

from collections.abc import Mapping
import dataclasses
import pathlib
from types import ModuleType
from typing import Any

from episodic_dp import training
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.output import tables
from experiments import runs as runs_lib
from experiments.targets import panels

PRIVATE = "with_privacy"
_RUNS = {PRIVATE: "private=1", "without_privacy": "private=0"}


def runs(preset: str, arguments: str = "") -> list[runs_lib.Run]:
  """The private run, and the other.

  Args:
    preset: whose `private` says which.
    arguments: that both share.
  """
  return [
      runs_lib.Run(
          name=name,
          config=preset,
          arguments=",".join(filter(None, (arguments, kind))),
          labels={"private": name == PRIVATE},
      )
      for name, kind in _RUNS.items()
  ]


def report(
    made: ModuleType,
    outcomes: panels.Outcomes,
    folder: pathlib.Path,
    seconds: float,
) -> None:
  """Prints scores and guarantees; writes results.json and the pictures.

  Args:
    made: the target.
    outcomes: of the runs that are finished.
    folder: of the results, and of the runs.
    seconds: that the command has taken.
  """
  more: Mapping[str, tuple[str, training.Score]]
  with phases.phase("drawing the pictures of all runs"):
    more = made.finish(outcomes, folder)
  header: list[str] = []
  rows: list[list[Any]] = []
  results: dict[str, Any] = {}
  for name, outcome in outcomes.items():
    results[name] = {k: v for k, v in outcome.items() if k != "printed"}
    if name in more:
      label, score = more[name]
      results[name][label.replace(" ", "_")] = dataclasses.asdict(score)
      rows.append([name, label, score, score.tasks, outcome["steps"]])
    header = outcome["printed"]["header"]
    rows += [[name, *row] for row in outcome["printed"]["rows"]]
  results |= {"chance": made.CHANCE, "seconds": round(seconds, 1)}
  files.write_json(folder / "results.json", results)
  print(tables.text(["run", *header], rows))
  if PRIVATE in outcomes:
    chance = f"chance is {100 * made.CHANCE:.0f} %; " if made.CHANCE else ""
    print(f"{chance}guarantees of the private run:")
    print("\n".join(outcomes[PRIVATE]["printed"]["guarantees"]))
  print(f"{seconds:.0f} s; pictures and checkpoints in {folder}")

"""What the targets share that train a preset with and without privacy."""

from collections.abc import Iterator

from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.training import reporting
from experiments import runs as runs_lib
from experiments.targets import panels

PRIVATE = "with_privacy"
NOT_ADAPTED = "not_adapted"  # The field of an outcome with that error.
_RUNS = {PRIVATE: "private=1", "without_privacy": "private=0"}
_MODELS = {
    NOT_ADAPTED: "last checkpoint, not adapted",
    "untrained": "untrained",
    "single": "last checkpoint",
    "ensemble": "ensemble of the best",
}
_KINDS = training.Accuracy, training.SquaredError


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


def words(name: str) -> str:
  """The name of a run as it is printed."""
  return name.replace("_", " ")


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per run and model, with what that model costs each privacy unit."""
  first = next(iter(outcomes.values()))
  header = [
      "run",
      "model",
      f"test {reporting.words(_kind(first).name)}",
      "tasks",
      *(f"ε of one {level}" for level in first["epsilon"]),
  ]
  rows = []
  for name, outcome in outcomes.items():
    for model, score in _scores(outcome):
      spent = [panels.epsilon([outcome], level) for level in first["epsilon"]]
      if model == "untrained":
        spent = ["0"] * len(spent)
      rows.append(
          [words(name), _MODELS[model], str(score), str(score.tasks), *spent]
      )
  return header, rows


def finding(outcomes: panels.Outcomes) -> str:
  """The last checkpoints, and what exactly is guaranteed."""
  found = [
      f"{dict(_scores(outcome))['single']} {words(name)}"
      for name, outcome in outcomes.items()
  ]
  text = f"On new tasks: {', '.join(found)}"
  if PRIVATE in outcomes:
    private = outcomes[PRIVATE]
    stated = [
        f"ε = {report.rounded_up(g['epsilon'])} at δ = {g['delta']:g}"
        f" ({g['neighbours']})"
        for g in private["epsilon"].values()
    ]
    text += f"; guaranteed after {private['steps']} steps: {', '.join(stated)}"
  return f"{text}."


def _kind(outcome: panels.Outcome) -> type[training.Score]:
  return next(kind for kind in _KINDS if kind.name in outcome)


def _scores(
    outcome: panels.Outcome,
) -> Iterator[tuple[str, training.Score]]:
  """Model -> its score, in the order of a table."""
  kind = _kind(outcome)
  found = {NOT_ADAPTED: outcome.get(NOT_ADAPTED), **outcome[kind.name]}
  for model in _MODELS:
    if found.get(model):
      yield model, kind(**found[model])

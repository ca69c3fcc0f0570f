"""Presets trained with and without privacy: glyphs, sinusoids, stages."""

from collections.abc import Iterator
import functools
from typing import Any

from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.output import plotting
from episodic_dp.training import reporting
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import dp_maml
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
_KINDS = training.evaluation.Accuracy, training.evaluation.SquaredError
# Two participants a step, or few steps: too little to learn, enough to run.
_SMOKE = {
    "glyphs": "participants=64,rate=0.03,size=16,width=2,steps=4",
    "sinusoid": "participants=2000,rate=0.05,steps=40,inner_steps=1,width=8",
}


def runs(preset: str, scale: str) -> list[runs_lib.Run]:
  """Return the private run of a preset, and the other."""
  smoke = [_SMOKE[preset]] if scale == "smoke" else []
  return [
      runs_lib.Run(
          name=name,
          config=preset,
          arguments=",".join([*smoke, kind]),
          labels={"private": name == PRIVATE},
      )
      for name, kind in _RUNS.items()
  ]


def table(outcomes: panels.Outcomes) -> panels.Table:
  """Return a row per run and model, with its epsilon for each level."""
  first = next(iter(outcomes.values()))
  levels = list(first["epsilon"])
  score_name = next(kind.name for kind in _KINDS if kind.name in first)
  header = [
      "run", "model", f"test {reporting.words(score_name)}", "tasks",
      *(f"ε of one {level}" for level in levels),
  ]
  rows = [
      [
          name.replace("_", " "), _MODELS[model], str(score), str(score.tasks),
          *(
              "0" if model == "untrained" else panels.epsilon_of([o], level)
              for level in levels
          ),
      ]
      for name, o in outcomes.items()
      for model, score in _scores(o)
  ]
  return header, rows


def _scores(
    outcome: panels.Outcome,
) -> Iterator[tuple[str, training.evaluation.Score]]:
  """Yield each model and its score, in the order of a table."""
  kind = next(kind for kind in _KINDS if kind.name in outcome)
  found = {NOT_ADAPTED: outcome.get(NOT_ADAPTED), **outcome[kind.name]}
  for model in _MODELS:
    if found.get(model):
      yield model, kind(**found[model])


def finding(outcomes: panels.Outcomes) -> str:
  """Return the scores of the last checkpoints, and the guarantees."""
  found = [
      f"{dict(_scores(outcome))['single']} {name.replace('_', ' ')}"
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


def _draw_glyphs(outcomes: panels.Outcomes, figure: Any) -> None:
  """Plot validation accuracy over the steps of both runs."""
  axes = figure.subplots()
  for number, (name, outcome) in enumerate(outcomes.items()):
    dp_maml.draw_validation(
        axes, outcome["validation"]["steps"], [outcome], number,
        name.replace("_", " "),
    )
  panels.finish_axes(axes, "steps", budgets.CHANCE)
  plotting.over_steps(axes)
  axes.set_ylabel("accuracy (%), validation tasks, 95 % interval")


def _draw_sinusoids(outcomes: panels.Outcomes, figure: Any) -> None:
  """Plot the error of every model of both runs."""
  axes = figure.subplots()
  for number, (name, outcome) in enumerate(outcomes.items()):
    found = dict(_scores(outcome))
    axes.errorbar(
        [score.mean for score in found.values()],
        [list(_MODELS).index(model) + 0.1 * number for model in found],
        xerr=[score.high - score.mean for score in found.values()],
        capsize=2,
        label=name.replace("_", " "),
        **plotting.series(number) | {"linestyle": ""},
    )
  axes.set_yticks(range(len(_MODELS)), _MODELS.values())
  axes.set_xscale("log")
  plotting.plain_numbers(axes.xaxis)
  axes.set_xlabel("squared error on new sinusoids, 95 % interval")
  plotting.legend_below(axes)


# Training in stages -----------------------------------------------------------

_CASES = {
    "omniglot_characters": ("Omniglot, two stages", "tasks=20"),
    "omniglot_alphabets": ("Omniglot, three stages", ""),
    "cifar_fs_superclasses": ("CIFAR-FS, three stages", ""),
    "glyphs": ("glyphs, three stages", ""),
}
# Scale -> the network and the length.
_SIZES = {
    "smoke": "width=2,steps=2,participants=200,size=16",
    "cpu": "width=8,steps=60",
    "full": "width=64,steps=1000",
}


def _stages_runs(scale: str) -> list[runs_lib.Run]:
  """Return every case with privacy and without; built-in data at smoke."""
  smoke = scale == "smoke"
  return [
      runs_lib.Run(
          name=f"{config}_{'private' if private else 'plain'}",
          config=config,
          arguments=",".join(filter(None, (
              f"private={private}", _SIZES[scale], _CASES[config][1],
          ))),
          overrides=budgets.SMALL if smoke else {},
          labels=dict(case=_CASES[config][0], private=bool(private)),
      )
      for config in (["glyphs"] if smoke else _CASES)
      for private in (1, 0)
  ]


def _every_level(same: panels.Same) -> str:
  """Return epsilon of every level, the outermost first."""
  if not same[0]["labels"]["private"]:
    return "none"
  return ", ".join(
      f"{level} {panels.epsilon_of(same, level)}"
      for level in same[0]["epsilon"]
  )


def _delta(same: panels.Same) -> str:
  return f"{min(g['delta'] for g in same[0]['epsilon'].values()):g}"


_stages_table = panels.tabled({
    "data": panels.label("case"),
    "private": panels.is_private,
    "steps": panels.field("steps"),
    "noise multiplier": panels.field("noise_multiplier", "{:g}"),
    "ε of every level": _every_level,
    "δ": _delta,
    panels.SINGLE: panels.accuracy,
    "ensemble of the best": panels.ensemble,
    "untrained": panels.untrained,
    "training": panels.seconds,
})


TARGETS = {
    "glyphs": panels.Target(
        title="The main job: built-in glyphs with and without privacy",
        about="""\
`make train` runs this: a narrow Conv4 learns by second-order MAML to classify
the glyphs of generated writers, 5-way 1-shot, with writers as participants.
Both runs are measured on 600 test tasks of writers that neither has seen.""",
        notes="""\
The preset's settings were chosen on its validation writers. "± " is the 95 %
interval over the test tasks; every run has a new secret key, which moves its
accuracy by several points, private or not.""",
        runs=functools.partial(runs, "glyphs"), table=table, finding=finding,
        draw=_draw_glyphs,
    ),
    "sinusoid": panels.Target(
        title="Regression on sinusoids with and without privacy: the smallest"
        " example",
        about="""\
MAML's own first task. Every participant holds points of one sinusoid; a
perceptron learns to draw an unseen participant's curve through ten of them.
Both runs are measured on 600 sinusoids that neither has seen, after adapting to
ten points of each.""",
        notes="""\
The preset's settings were chosen on its validation participants. "± " is the
95 % interval over the test sinusoids. The run without privacy does not clip
either.""",
        runs=functools.partial(runs, "sinusoid"), table=table, finding=finding,
        draw=_draw_sinusoids,
    ),
    "stages": panels.Target(
        title="Training in two and three stages, with a guarantee for every"
        " level: [P]",
        about="""\
"Privacy Amplification for Episodic Training Methods" samples units, units of
these, and examples. Here Omniglot is trained on in two stages (character,
drawing) and in three (alphabet, character, drawing), CIFAR-FS in three
(superclass, class, image), and the built-in glyphs in three (participant,
glyph, drawing), each with privacy and without. One run gives guarantees for
every level, at the noise that its preset sets. With only 30 alphabets or 20
superclasses no useful ε exists for one of them: those runs demonstrate the
accounting, and the glyphs with their thousands of participants show a useful ε.
Accuracy is measured on classes that no run trained on.""",
        notes="""\
Nothing was tuned for these runs: noise, rates and steps are those of the
presets (`episodic_dp/config/presets/`), or fewer steps where the command says
so. The levels named first in a cell hold the others.""",
        runs=_stages_runs, table=_stages_table,
        draw=panels.dotted(
            lambda o: o["labels"]["case"],
            lambda o: "private" if o["labels"]["private"] else "not private",
            chance=budgets.CHANCE,
        ),
    ),
}

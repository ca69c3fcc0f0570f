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
  found = []
  for name, arguments in _RUNS.items():
    if scale == "smoke":
      arguments = f"{_SMOKE[preset]},{arguments}"
    found.append(runs_lib.Run(
        name=name,
        config=preset,
        arguments=arguments,
        labels={"private": name == PRIVATE},
    ))
  return found


def table(outcomes: panels.Outcomes) -> panels.Table:
  """Return a row per run and model, with its epsilon for each level."""
  first = next(iter(outcomes.values()))
  levels = list(first["epsilon"])
  score_name = next(kind.name for kind in _KINDS if kind.name in first)
  header = ["run", "model", f"test {reporting.words(score_name)}", "tasks"]
  header += [f"ε, {level}" for level in levels]
  rows = []
  for name, outcome in outcomes.items():
    spent = [panels.epsilon_of([outcome], level) for level in levels]
    for model, score in _scores(outcome):
      row = [
          name.replace("_", " "), _MODELS[model], str(score), str(score.tasks)
      ]
      if model == "untrained":
        row += ["0"] * len(levels)
      else:
        row += spent
      rows.append(row)
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
  found = []
  for name, outcome in outcomes.items():
    score = dict(_scores(outcome))["single"]
    found.append(f"{score} {name.replace('_', ' ')}")
  text = f"On new tasks: {', '.join(found)}"
  if PRIVATE in outcomes:
    private, stated = outcomes[PRIVATE], []
    for g in private["epsilon"].values():
      stated.append(
          f"ε = {report.rounded_up(g['epsilon'])} at δ = {g['delta']:g}"
          f" ({g['neighbours']})"
      )
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
    means, places, halves = [], [], []
    for model, score in _scores(outcome):
      means.append(score.mean)
      places.append([*_MODELS].index(model) + 0.1 * number)
      halves.append(score.high - score.mean)
    axes.errorbar(
        means,
        places,
        xerr=halves,
        capsize=2,
        label=name.replace("_", " "),
        **plotting.series(number) | {"linestyle": ""},
    )
  axes.set_yticks(range(len(_MODELS)), _MODELS.values())
  axes.set_xscale("log")
  panels.plain_numbers(axes.xaxis)
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
  cases, overrides, found = _CASES, {}, []
  if scale == "smoke":
    cases, overrides = {"glyphs": _CASES["glyphs"]}, budgets.SMALL
  for config, (title, more) in cases.items():
    for kind, private in (("private", 1), ("plain", 0)):
      arguments = (f"private={private}", _SIZES[scale], more)
      found.append(runs_lib.Run(
          name=f"{config}_{kind}",
          config=config,
          arguments=",".join(filter(None, arguments)),
          overrides=overrides,
          labels=dict(case=title, private=bool(private)),
      ))
  return found


def _every_level(same: panels.Same) -> str:
  """Return epsilon of every level, the outermost first."""
  if not same[0]["labels"]["private"]:
    return "none"
  found = []
  for level in same[0]["epsilon"]:
    found.append(f"{level} {panels.epsilon_of(same, level)}")
  return ", ".join(found)


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
The preset's settings were chosen on its validation writers, with 400 tasks and
one to three keys each. With 8000 participants clip norm 1 has 64.3 %, 0.3 has
70.2 and 0.1 has 67.0; with an average of the last steps (0.85) norm 1 has 69.6
and 0.3 has 70.9, or 68.3 with a rate of 0.02 and 60.8 with 0.05. More
participants at the same share of them in a step have the same ε and
less noise in the mean: 12 000 have 74.9, 76.2 and 81.2 % (three keys), and
16 000, with a third more tasks to compute, 75.3, 80.4 and 82.6 %. "± " is the
95 % interval over the test tasks; every run has a new secret key, which moves
its accuracy by some points, private or not.""",
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
so. The levels named first in a cell hold the others.

Without privacy a run of MAML varies more: on the glyphs four keys of the
[main job](glyphs.md) had 83 to 87 % and the one here 73.1 %, less than with
privacy. [Predicting one image at a time](../../docs/decisions/prediction.md)
costs MAML more where it is trained further.""",
        runs=_stages_runs, table=_stages_table,
        draw=panels.dotted(
            lambda o: o["labels"]["case"],
            lambda o: "private" if o["labels"]["private"] else "not private",
            chance=budgets.CHANCE,
        ),
    ),
}

"""The main job: built-in glyphs with and without privacy (`make train`).

Both runs are measured on 600 test tasks of writers that neither has seen.
Leaves DIR/learning_curve.png and DIR/epsilon_curve.png beside the two runs.
"""

import pathlib

from episodic_dp import training
from episodic_dp.config.presets import glyphs
from episodic_dp.training import metrics
from episodic_dp.training import plots
from experiments import runs as runs_lib
from experiments.targets import pairs
from experiments.targets import panels

CHANCE = 1 / glyphs.get_config().episode.way
# Two of 64 participants a step: too little to learn, enough to run.
_SMOKE = "participants=64,rate=0.03,size=16,width=2,steps=4"


def runs(scale: str) -> list[runs_lib.Run]:
  """With privacy and without; the preset is made for a CPU."""
  return pairs.runs("glyphs", _SMOKE if scale == "smoke" else "")


def finish(
    outcomes: panels.Outcomes, folder: pathlib.Path
) -> dict[str, tuple[str, training.Score]]:
  """Draws accuracy over the steps of both runs, and epsilon."""
  curves = [
      plots.validation_curve(
          metrics.read(folder / name / metrics.FILE),
          label=f"{name.replace('_', ' ')}, 95 % interval over the tasks",
      )
      for name in outcomes
  ]
  plots.learning_curve(
      folder / plots.LEARNING_CURVE,
      curves,
      chance=CHANCE,
      title="Accuracy on public validation tasks of the built-in glyphs",
      spent=_spent(folder),
  )
  if pairs.PRIVATE in outcomes:
    drawn = folder / pairs.PRIVATE / plots.EPSILON_CURVE
    (folder / plots.EPSILON_CURVE).write_bytes(drawn.read_bytes())
  return {}


def _spent(folder: pathlib.Path) -> plots.Curve | None:
  """Epsilon over the steps of the private run, where it has been made."""
  lines = metrics.read(folder / pairs.PRIVATE / metrics.FILE)
  level = glyphs.get_config().hierarchy.levels[0]
  return plots.spent_curve(lines, label=f"ε of one {level}") if lines else None

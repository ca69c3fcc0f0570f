"""The main job: built-in glyphs with and without privacy.

What `make train` does: a narrow Conv4 learns by second-order MAML to tell the
glyphs of generated writers apart, 5-way 1-shot, with writers as participants.
Both runs are measured on 600 test tasks of writers that neither has seen.
"""

from typing import Any

from episodic_dp.config.presets import glyphs
from episodic_dp.output import plotting
from experiments import runs as runs_lib
from experiments.targets import pairs
from experiments.targets import panels
from experiments.targets import trajectories

NOTES = """\
The preset's settings were chosen on its validation writers. "± " is the 95 %
interval over the test tasks; every run draws a secret key of its own, which
moves its accuracy, private or not: six private ones had 67.1 to 77.5 % on
validation tasks (`episodic-dp train --config=glyphs --keys=6`).
"""
# Two of 64 participants a step: too little to learn, enough to run.
_SMOKE = "participants=64,rate=0.03,size=16,width=2,steps=4"

table = pairs.table
finding = pairs.finding


def runs(scale: str) -> list[runs_lib.Run]:
  """With privacy and without; the preset is made for a CPU."""
  return pairs.runs("glyphs", _SMOKE if scale == "smoke" else "")


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Validation accuracy over the steps of both runs."""
  axes = figure.subplots()
  for number, (name, outcome) in enumerate(outcomes.items()):
    drawn = trajectories.curve([outcome])
    trajectories.draw_curve(
        axes, drawn.steps, drawn, number, pairs.words(name)
    )
  chance = 1 / glyphs.get_config().episode.way
  axes.axhline(100 * chance, label="chance", **plotting.REFERENCE)
  axes.set_ylim(0, 100)
  plotting.over_steps(axes)
  axes.set_ylabel("accuracy (%), validation tasks, 95 % interval")
  axes.set_title("Built-in glyphs, public validation tasks", loc="left")
  plotting.legend_below(axes)

"""Training in two and three stages, with a guarantee for every level: [P].

"Privacy Amplification for Episodic Training Methods" samples units, units of
these, and examples. Here Omniglot is trained on in two stages (character,
drawing) and in three (alphabet, character, drawing), CIFAR-FS in three
(superclass, class, image), and the built-in glyphs in three (participant,
glyph, drawing), each with privacy and without. One run guarantees something to
every level, at the noise that its preset sets. Of 30 alphabets or 20
superclasses there are too few to hide one among: those runs teach the
accounting, and the glyphs with their thousands of participants show an ε that
is of use. Accuracy is that on classes nobody trained on.
"""

from typing import Any

from experiments import runs as runs_lib
from experiments.targets import panels

NOTES = """\
Nothing was tuned for these runs: noise, rates and steps are those of the
presets (`episodic_dp/config/presets/`), or fewer steps where the command says
so. The levels that stand first in a cell hold the others.
"""
CHANCE = 0.2
_CASES = {
    "omniglot_characters": ("Omniglot, two stages", "tasks=20"),
    "omniglot_alphabets": ("Omniglot, three stages", ""),
    "cifar_fs_superclasses": ("CIFAR-FS, three stages", ""),
    "glyphs": ("glyphs, three stages", ""),
}
_TINY = "participants=200,size=16"
# Scale -> what the network and the length are.
_SIZES = {
    "smoke": "width=2,steps=2",
    "cpu": "width=8,steps=60",
    "full": "width=64,steps=1000",
}


def runs(scale: str) -> list[runs_lib.Run]:
  """Every case with privacy and without; built-in data alone at smoke."""
  cases = ["glyphs"] if scale == "smoke" else list(_CASES)
  fields = {}
  if scale == "smoke":
    fields = {"evaluation.validation_tasks": 8, "evaluation.test_tasks": 16}
  return [
      runs_lib.Run(
          name=f"{config}_{'private' if private else 'plain'}",
          config=config,
          arguments=",".join(filter(None, (
              f"private={private}", _SIZES[scale], _CASES[config][1],
              _TINY if scale == "smoke" else "",
          ))),
          overrides=fields,
          labels=dict(case=_CASES[config][0], private=bool(private)),
      )
      for config in cases for private in (1, 0)
  ]  # fmt: skip


def _spent(outcome: panels.Outcome) -> str:
  """Epsilon of every level, the outermost first."""
  levels = outcome["epsilon"]
  return ", ".join(
      f"{level} {panels.epsilon([outcome], level)}" for level in levels
  )


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per run."""
  header = [
      "data", "private", "steps", "noise multiplier", "ε of every level", "δ",
      "test accuracy, last checkpoint", "ensemble of the best", "untrained",
      "training",
  ]  # fmt: skip
  rows = [
      [
          o["labels"]["case"],
          "yes" if o["labels"]["private"] else "no",
          str(o["steps"]),
          f"{o['noise_multiplier']:g}",
          _spent(o) if o["labels"]["private"] else "none",
          f"{min(g['delta'] for g in o['epsilon'].values()):g}",
          panels.accuracy([o]),
          panels.accuracy([o], "ensemble"),
          panels.accuracy([o], "untrained"),
          panels.seconds([o]),
      ]
      for o in outcomes.values()
  ]
  return header, rows


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """A dot a run, with and without privacy."""
  series: dict[str, dict[str, list[panels.Outcome]]] = {}
  names: dict[str, None] = {}
  for o in outcomes.values():
    legend = "private" if o["labels"]["private"] else "not private"
    series.setdefault(legend, {}).setdefault(o["labels"]["case"], []).append(o)
    names[o["labels"]["case"]] = None
  panels.dots(figure.subplots(), list(names), series, chance=CHANCE)


def finding(outcomes: panels.Outcomes) -> str:
  """Epsilon of every level beside accuracy, for each private run."""
  parts = [
      f"{o['labels']['case']}: ε of {_spent(o)}, {panels.percent([o]):.1f} %"
      f" (untrained {panels.percent([o], 'untrained'):.1f})"
      for o in outcomes.values() if o["labels"]["private"]
  ]  # fmt: skip
  return "; ".join(parts) + "."

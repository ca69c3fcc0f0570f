"""Sample-level DP-MAML for 5-way K-shot Omniglot: Figure 13 of [M].

[M] is "Meta-Learning with Differential Privacy"; its Algorithm 2 clips and
noises the gradient of every single drawing, inside a task and across tasks,
with z = 1 in both and L = 10 tasks a step, 4000 tasks in all. Its text claims
(1.18, 1e-5) for a drawing and states 92 % at K = 8. That ε is what the moments
accountant gives for a *task* drawn at the rate 10 / 4000; as these runs draw
(ten tasks of five characters without replacement, K + 1 of a character's 20
drawings), a drawing's ε at z = 1 is what the table says, 45.8 at K = 8. One run
there has the noise with which a drawing spends 1.18 in truth, and one has none.
Clip norms are fixed, since one that adapts inside a task has no guarantee, and
outer gradients are of first order and norms by group, without which none holds
either. Intervals are over 600 test tasks, for one key.
"""

from typing import Any

from episodic_dp.config.presets import omniglot_characters
from episodic_dp.output import plotting
from experiments import runs as runs_lib
from experiments.targets import panels
from experiments.targets import sample_level
from experiments.targets import sweeps

CHANCE = sample_level.CHANCE
_CLAIMED, _SHOTS = 1.18, 8
# Shots -> accuracy in percent, of [M].
PUBLISHED: dict[float, float] = {_SHOTS: 92.0}
_PAPERS, _TRUE, _PLAIN = "z = 1, as in [M]", "more noise", "without privacy"
_NAMES = {_PAPERS: "z_1", _TRUE: "epsilon_1.18", _PLAIN: "plain"}
_TASKS, _STEPS = 10, 400
# scale -> width, shots at z = 1, shots at the claimed ε and without privacy.
_SIZES: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
    "smoke": (2, (1,), ()),
    "cpu": (8, (1, 5, 8), (_SHOTS,)),
    "full": (64, (1, 2, 5, 8, 10), (1, 2, 5, 8, 10)),
}


def runs(scale: str) -> list[runs_lib.Run]:
  """As in the paper, at the epsilon that it claims, and without privacy."""
  width, shots, more = _SIZES[scale]
  if scale == "smoke":
    return [_trial(shot, width) for shot in shots]
  found = [_run(shot, width, (1.0, 1.0), _PAPERS) for shot in shots]
  for shot in more:
    noise = sample_level.noise_multipliers(
        _CLAIMED,
        tasks=_TASKS, shot=shot, inner_steps=1, steps=_STEPS, sample_level=1,
    )  # fmt: skip
    found.append(_run(shot, width, noise, _TRUE, _CLAIMED))
    found.append(_run(shot, width, None, _PLAIN))
  return found


def _run(
    shot: int,
    width: int,
    noise: tuple[float, float] | None,
    kind: str,
    epsilon: float | None = None,
) -> runs_lib.Run:
  """A run of the paper's size in tasks; `noise` is (outer, inner)."""
  arguments = (
      f"private={int(noise is not None)},sample_level={int(noise is not None)},"
      f"tasks={_TASKS},shot={shot},inner_steps=1,steps={_STEPS},width={width}"
  )
  if noise:
    arguments += (
        f",noise_multiplier={noise[0]},inner_noise_multiplier={noise[1]}"
    )
  every = _STEPS // 10
  return runs_lib.Run(
      name=f"sample_level_shot_{shot}_{_NAMES[kind]}",
      config="omniglot_characters",
      arguments=arguments,
      overrides={
          "delta": sample_level.DELTA,
          "evaluation.every": every,
          "checkpoint_every": every,
      },
      labels=dict(shot=shot, kind=kind, epsilon=epsilon),
  )


def _trial(shot: int, width: int) -> runs_lib.Run:
  """Two steps of built-in data."""
  return runs_lib.Run(
      name=f"sample_level_shot_{shot}",
      config="glyphs_sample_level",
      arguments=(
          f"participants=40,rate=0.05,width={width},inner_steps=1,shot={shot},"
          "query=1,steps=2"
      ),
      overrides={
          "delta": sample_level.DELTA,
          "evaluation.validation_tasks": 8,
          "evaluation.test_tasks": 16,
      },
      labels=dict(shot=shot, kind=_PAPERS, epsilon=None),
  )


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per run."""
  header = [
      "shots K",
      "noise",
      "test accuracy, last checkpoint",
      "ensemble of five",
      "untrained",
      "[M]",
      "ε of a drawing, as it ran",
      "ε of a drawing claimed in [M]",
      "ε of a class",
      "of CPU time",
  ]
  rows = []
  for outcome in outcomes.values():
    labels, found = outcome["labels"], [outcome]
    papers = labels["kind"] == _PAPERS
    stated = PUBLISHED.get(labels["shot"]) if papers else None
    rows.append([
        str(labels["shot"]),
        labels["kind"],
        panels.accuracy(found),
        panels.accuracy(found, "ensemble"),
        panels.accuracy(found, "untrained"),
        f"{stated:g} %" if stated else "",
        panels.epsilon(found, sample_level.LEVEL),
        f"{_CLAIMED}" if papers else "",
        panels.epsilon(found, omniglot_characters.LEVELS[0]),
        panels.seconds(found, "cpu_seconds"),
    ])
  return header, rows


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Accuracy over shots, and what the paper states."""
  sample_level.draw(outcomes, figure)
  (axes,) = figure.axes
  sweeps.published(axes, PUBLISHED)
  plotting.legend_below(axes)


def finding(outcomes: panels.Outcomes) -> str:
  """What the shots come to that the paper states an accuracy for."""
  found = [
      f"{panels.accuracy([o])} ({o['labels']['kind']}, ε ="
      f" {panels.epsilon([o], sample_level.LEVEL)})"
      for o in outcomes.values()
      if o["labels"]["shot"] == _SHOTS
  ]
  if not found:
    return ""
  return (
      f"At K = {_SHOTS}, where [M] states {PUBLISHED[_SHOTS]:g} % at a claimed"
      f" ε of {_CLAIMED}: {', '.join(found)}."
  )

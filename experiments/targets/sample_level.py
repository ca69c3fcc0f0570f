"""Sample-level DP-MAML over the shots: the first Figure 13 of [M]."""

import functools
import math
from typing import Any

from episodic_dp import accounting
from episodic_dp.config.presets import omniglot_characters
from episodic_dp.output import plotting
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

DELTA = 1e-5
CLASS, DRAWING = omniglot_characters.LEVELS[0], omniglot_characters.LEVELS[-1]
CLAIMED, SHOTS, REACHED = 1.18, 8, 92.0  # Of [M]: ε, and percent at K = 8.
# Outer noise as a multiple of the inner one: the outer sum runs over many
# tasks, the inner one over the shots of one.
_OUTER = 2.0


@functools.lru_cache
def noise_multipliers(
    *, tasks: int, shot: int, inner_steps: int, steps: int
) -> tuple[float, float]:
  """Return (outer, inner) noise that spends (1.18, 1e-5) for a drawing.

  It is the smallest pair in the ratio of this file, rounded up to six digits.
  """

  def spent(inner: float) -> float:
    config = omniglot_characters.omniglot_characters(
        sample_level=True, tasks=tasks, shot=shot, inner_steps=inner_steps,
        steps=steps, noise_multiplier=_OUTER * inner,
        inner_noise_multiplier=inner,
    )
    return accounting.guarantee(
        config.release, steps=config.steps, delta=DELTA, level=DRAWING
    ).epsilon

  low, high = 0.0, 1.0
  while spent(high) > CLAIMED:
    low, high = high, 2 * high
  while high - low > 1e-3 * high:
    middle = (low + high) / 2
    if spent(middle) > CLAIMED:
      low = middle
    else:
      high = middle
  inner = math.ceil(high * 1e6) / 1e6
  return _OUTER * inner, inner


# As in [M]; at the epsilon that it claims; and without privacy.
_PAPERS, _TRUE, _PLAIN = "z = 1, as in [M]", "more noise", "without privacy"
_NAMES = {_PAPERS: "z_1", _TRUE: "epsilon_1.18", _PLAIN: "plain"}
# Scale -> width, shots at z = 1, shots at the claimed ε and without privacy.
_SIZES: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
    "cpu": (8, (1, 5, 8), (SHOTS,)),
    "full": (64, (1, 2, 5, 8, 10), (1, 2, 5, 8, 10)),
}


def runs(scale: str) -> list[runs_lib.Run]:
  """Return the runs of the figure; a trial is of built-in data."""
  if scale == "smoke":
    return [runs_lib.Run(
        name="sample_level_shot_1",
        config="glyphs_sample_level",
        arguments="participants=40,rate=0.05,width=2,inner_steps=1,shot=1,"
        "query=1,steps=2",
        overrides={"delta": DELTA, **budgets.SMALL},
        labels=dict(shot=1, kind=_PAPERS, epsilon=None),
    )]
  width, shots, more = _SIZES[scale]
  found = [(shot, _PAPERS) for shot in shots]
  found += [(shot, kind) for shot in more for kind in (_TRUE, _PLAIN)]
  return [_run(shot, kind, width) for shot, kind in found]


def _run(shot: int, kind: str, width: int) -> runs_lib.Run:
  """Describe a run with as many tasks as in the paper."""
  tasks: dict[str, Any] = dict(tasks=10, shot=shot, inner_steps=1, steps=400)
  private, epsilon = int(kind != _PLAIN), None
  arguments = dict(private=private, sample_level=private, **tasks, width=width)
  if private:
    outer, inner = 1.0, 1.0
    if kind == _TRUE:
      epsilon = CLAIMED
      outer, inner = noise_multipliers(**tasks)
    arguments |= dict(noise_multiplier=outer, inner_noise_multiplier=inner)
  return runs_lib.Run(
      name=f"sample_level_shot_{shot}_{_NAMES[kind]}",
      config="omniglot_characters",
      arguments=budgets.text(arguments),
      overrides={"delta": DELTA, **budgets.every(400)},
      labels=dict(shot=shot, epsilon=epsilon, kind=kind),
  )


def _of_the_paper(same: panels.Same) -> bool:
  return same[0]["labels"]["kind"] == _PAPERS


def _reached(same: panels.Same) -> str:
  if _of_the_paper(same) and same[0]["labels"]["shot"] == SHOTS:
    return f"{REACHED:g} %"
  return ""


_table = panels.tabled({
    "shots": panels.label("shot"),
    "run": panels.label("kind"),
    panels.SINGLE: panels.accuracy,
    "ensemble of the best": panels.ensemble,
    "untrained": panels.untrained,
    "ε of a drawing": panels.epsilon(DRAWING),
    "ε of a class": panels.epsilon(CLASS),
    "of CPU time": panels.cpu_seconds,
    "[M]": _reached,
    "ε of a drawing claimed in [M]": (
        lambda same: f"{CLAIMED}" if _of_the_paper(same) else ""
    ),
})


def _line(same: panels.Same) -> str:
  labels = same[0]["labels"]
  if labels["epsilon"] is None:
    return str(labels["kind"])
  return f"{labels['kind']}, ε = {labels['epsilon']:g}"


def _draw(outcomes: panels.Outcomes, figure: Any) -> None:
  axes = figure.subplots()
  panels.draw_lines(
      axes,
      panels.lines(
          panels.group(outcomes), _line, lambda same: same[0]["labels"]["shot"]
      ),
      "shots (images of a class to adapt to)",
      chance=budgets.CHANCE,
  )
  axes.plot([SHOTS], [REACHED], **panels.PUBLISHED)
  plotting.legend_below(axes)


TARGETS = {
    "figure13_shots": panels.Target(
        title="Sample-level DP-MAML for 5-way K-shot Omniglot: Figure 13 of"
        " [M]",
        about="""\
[M] is "Meta-Learning with Differential Privacy"; its Algorithm 2 clips and
noises the gradient of every single drawing, inside a task and across tasks,
with z = 1 in both and L = 10 tasks a step, 4000 tasks in all. Its text claims
(1.18, 1e-5) for a drawing and states 92 % at K = 8. That ε is what the moments
accountant gives for a *task* drawn at the rate 10 / 4000; as these runs draw
(ten tasks of five characters without replacement, K + 1 of a character's 20
drawings), a drawing's ε at z = 1 is what the table says, 45.8 at K = 8. One run
there has the noise with which a drawing truly spends 1.18, and one has none.
Clip norms are fixed, since one that adapts inside a task has no guarantee, and
outer gradients are of first order and norms by group, without which none holds
either. Intervals are over 600 test tasks, for one key.""",
        runs=runs, table=_table, draw=_draw,
    ),
}

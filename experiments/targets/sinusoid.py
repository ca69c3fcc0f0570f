"""Regression on sinusoids with and without privacy: the smallest example.

Both runs are measured on 600 sinusoids that neither has seen, before and after
adapting to ten points of each. Leaves DIR/curves.png beside the two runs: a few
of the unseen sinusoids with what was learned of them from ten points.
"""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.config import build
from episodic_dp.config import saved
from episodic_dp.config.presets import sinusoid as config_lib
from episodic_dp.data import sinusoid
from episodic_dp.output import plotting
from episodic_dp.training import saved_runs
from experiments import runs as runs_lib
from experiments.targets import pairs
from experiments.targets import panels

CHANCE = None
CURVES = "curves.png"
_SMOKE = "participants=2000,rate=0.05,steps=40,inner_steps=1,width=8"
_SHOWN = 6


def runs(scale: str) -> list[runs_lib.Run]:
  """With privacy and without; the preset is made for a CPU."""
  return pairs.runs("sinusoid", _SMOKE if scale == "smoke" else "")


def finish(
    outcomes: panels.Outcomes, folder: pathlib.Path
) -> dict[str, tuple[str, training.Score]]:
  """Draws the curves; the error of the parameters as they are, of each run."""
  learned, errors = {}, {}
  for name in outcomes:
    experiment = build.build(saved.read(folder / name))
    learned[name] = last_params(experiment, folder / name)
    errors[name] = "not adapted", unadapted(experiment, learned[name])
  plotting.save(draw(experiment, learned), folder / CURVES)
  return errors


def last_params(experiment: build.Experiment, folder: pathlib.Path) -> Any:
  """The parameters of the last checkpoint of a run."""
  checkpoints, last = saved_runs.latest(folder)
  like = experiment.spec.learner.init(jax.random.key(0))
  return checkpoints.restore(last, like)[0]


def unadapted(
    experiment: build.Experiment, params: Any
) -> training.Score:
  """The error on the test tasks' queries of the parameters as they are."""
  tasks = build.draw_tasks(experiment.config, experiment.splits.test,
                             test=True)
  points = experiment.splits.test.images[tasks.rows[:, 0]]
  query = points[:, tasks.episode.shot :].reshape(-1, 1, 1, 2)
  outputs = experiment.spec.learner.model.apply(params, query[..., :1])
  errors = np.square(np.asarray(outputs)[:, 0] - query[:, 0, 0, 1])
  return training.interval(
      errors.reshape(len(tasks.rows), -1).mean(axis=1), training.SquaredError
  )


@plotting.styled
def draw(experiment: build.Experiment, learned: dict[str, Any]) -> Any:
  """A few test participants: curve, support points, and each run's guess."""
  episode = experiment.spec.release.plan.episode
  assert episode is not None  # The preset has one.
  shot, points = episode.shot, config_lib.POINTS
  options = experiment.config.data.options
  amplitude, phase = sinusoid.curves(
      options["test_participants"], seed=options["seed"], split="test"
  )
  x = np.linspace(*sinusoid.RANGE, 200, dtype=np.float32)
  held = experiment.splits.test.images.reshape(-1, points, 1, 1, 2)[:, :shot]
  predict = jax.jit(experiment.spec.learner.predict)
  figure = plotting.figure(6.4, width=plotting.WIDE)
  figure.suptitle(
      f"Sinusoids that no run has seen, learned from {shot} points each"
  )
  # Each panel has a scale of its own: amplitudes are from 0.1 to 5.
  panels = figure.subplots(2, _SHOWN // 2)
  for i, axes in enumerate(panels.flat):
    axes.plot(
        x, amplitude[i] * np.sin(x - phase[i]), color="grey", linewidth=4,
        linestyle="-", alpha=0.4, label="the participant's curve",
    )
    support = sampling.Examples(
        jnp.asarray(held[i, ..., :1]), jnp.asarray(held[i, :, 0, 0, 1:])
    )
    shown = [1.3 * amplitude[i]]
    for k, (name, params) in enumerate(learned.items()):
      look = plotting.series(k) | {"marker": ""}
      guess = predict(params, support, x.reshape(-1, 1, 1, 1))
      words = name.replace("_", " ")
      shown.append(1.05 * np.abs(guess).max())
      axes.plot(x, guess[:, 0], label=f"adapted, {words}", **look)
      plain = experiment.spec.learner.model.apply(
          params, jnp.asarray(x.reshape(-1, 1, 1, 1))
      )
      axes.plot(
          x, plain[:, 0],
          label=f"not adapted, {words}",
          **look | {"linestyle": (":", (0, (1, 3)))[k % 2], "linewidth": 1.2},
      )
    axes.plot(
        held[i, :, 0, 0, 0], held[i, :, 0, 0, 1], "k.",
        markersize=9, label=f"the {shot} points that are adapted to",
    )
    axes.set_ylim(-max(shown), max(shown))
    axes.set_xlim(*sinusoid.RANGE)
    axes.set_title(f"amplitude {amplitude[i]:.2g}", loc="left")
  for axes in panels[-1]:
    axes.set_xlabel("x")
  for axes in panels[:, 0]:
    axes.set_ylabel("y")
  handles = axes.get_legend_handles_labels()
  figure.legend(*handles, loc="outside lower center", ncols=3)
  return figure

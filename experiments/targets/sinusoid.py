"""Regression on sinusoids with and without privacy: the smallest example.

MAML's own first task. Every participant holds points of one sinusoid; a
perceptron learns to draw an unseen participant's curve through ten of them.
Both runs are measured on 600 sinusoids that neither has seen, before and after
adapting to ten points of each. The picture shows a few of these sinusoids and
what was learned of them.
"""

import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.config import build
from episodic_dp.config.presets import sinusoid as config_lib
from episodic_dp.data import sinusoid
from episodic_dp.output import plotting
from episodic_dp.training import saved_runs
from experiments import runs as runs_lib
from experiments.targets import pairs
from experiments.targets import panels

NOTES = """\
The preset's settings were chosen on its validation participants. "± " is the
95 % interval over the test sinusoids. The run without privacy does not clip
either.
"""
_SMOKE = "participants=2000,rate=0.05,steps=40,inner_steps=1,width=8"
_SHOWN = 6
_X = np.linspace(*sinusoid.RANGE, 100, dtype=np.float32)

table = pairs.table
finding = pairs.finding


def runs(scale: str) -> list[runs_lib.Run]:
  """With privacy and without; the preset is made for a CPU."""
  return pairs.runs("sinusoid", _SMOKE if scale == "smoke" else "")


def finish(
    run: runs_lib.Run,
    folder: str,
    *,
    shared: dict[str, Any],
    data_dir: str | None,
) -> dict[str, Any]:
  """Trains and measures a run, and keeps the curves of the picture."""
  del data_dir  # Sinusoids are generated.
  loaded = shared.setdefault("runs", runs_lib.Shared())
  return runs_lib.finish(run, folder, shared=loaded, more=_more)


def _more(
    experiment: build.Experiment, workdir: pathlib.Path
) -> dict[str, Any]:
  """The error of the parameters as they are, and curves: "not_adapted"."""
  params = last_params(experiment, workdir)
  error = unadapted(experiment, params)
  return {
      pairs.NOT_ADAPTED: dataclasses.asdict(error),
      "curves": _curves(experiment, params),
  }


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


def _curves(experiment: build.Experiment, params: Any) -> list[dict[str, Any]]:
  """Of a few test participants: curve, support points, and what is drawn.

  Returns:
    for each {"amplitude", "phase", "support": [shot][x, y], "adapted" and
    "not_adapted": the outputs at `_X`}, rounded to what a picture can show.
  """
  episode = experiment.spec.release.plan.episode
  assert episode is not None  # The preset has one.
  options = experiment.config.data.options
  amplitude, phase = sinusoid.curves(
      options["test_participants"], seed=options["seed"], split="test"
  )
  points = experiment.splits.test.images.reshape(-1, config_lib.POINTS, 2)
  learner = experiment.spec.learner
  inputs = jnp.asarray(_X.reshape(-1, 1, 1, 1))
  found = []
  for i, held in enumerate(points[:_SHOWN, : episode.shot]):
    support = sampling.Examples(
        jnp.asarray(held[:, :1].reshape(-1, 1, 1, 1)), jnp.asarray(held[:, 1:])
    )
    outputs = {
        "adapted": learner.predict(params, support, inputs),
        "not_adapted": learner.model.apply(params, inputs),
    }
    found.append({
        "amplitude": float(amplitude[i]),
        "phase": float(phase[i]),
        "support": np.round(held.astype(float), 4).tolist(),
        **{
            name: np.round(np.asarray(y, float)[:, 0], 3).tolist()
            for name, y in outputs.items()
        },
    })
  return found


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """A few test participants: curve, support points, and each run's guess."""
  shown = [outcome["curves"] for outcome in outcomes.values()]
  shot = len(shown[0][0]["support"])
  figure.suptitle(
      f"Sinusoids that no run has seen, learned from {shot} points each"
  )
  # Each panel has a scale of its own: amplitudes are from 0.1 to 5.
  grid = figure.subplots(2, _SHOWN // 2)
  for axes, of_runs in zip(grid.flat, zip(*shown)):
    _draw_one(axes, dict(zip(map(pairs.words, outcomes), of_runs)))
  for axes in grid[-1]:
    axes.set_xlabel("x")
  for axes in grid[:, 0]:
    axes.set_ylabel("y")
  handles = grid[0, 0].get_legend_handles_labels()
  figure.legend(*handles, loc="outside lower center", ncols=3)


def _draw_one(axes: Any, of_runs: dict[str, dict[str, Any]]) -> None:
  """One participant, with what each run says."""
  one = next(iter(of_runs.values()))
  amplitude = one["amplitude"]
  axes.plot(
      _X, amplitude * np.sin(_X - one["phase"]), color="grey", linewidth=4,
      linestyle="-", alpha=0.4, label="the participant's curve",
  )
  highest = 1.3 * amplitude
  for number, (words, found) in enumerate(of_runs.items()):
    look = plotting.series(number) | {"marker": ""}
    highest = max(highest, 1.05 * np.abs(found["adapted"]).max())
    axes.plot(_X, found["adapted"], label=f"adapted, {words}", **look)
    dots = {"linestyle": (":", (0, (1, 3)))[number % 2], "linewidth": 1.2}
    axes.plot(
        _X, found["not_adapted"], label=f"not adapted, {words}", **look | dots
    )
  axes.plot(
      *np.transpose(one["support"]), "k.", markersize=9,
      label=f"the {len(one['support'])} points that are adapted to",
  )
  axes.set_ylim(-highest, highest)
  axes.set_xlim(*sinusoid.RANGE)
  axes.set_title(f"amplitude {amplitude:.2g}", loc="left")

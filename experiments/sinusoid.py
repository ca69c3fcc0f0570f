"""Regression on sinusoids with and without privacy: the smallest example.

  python -m experiments.sinusoid --workdir=DIR

Runs the preset sinusoid twice (private=1 and private=0), measures both on 600
sinusoids that neither run has seen, before and after adapting to
ten points of each, prints the mean squared errors with 95 % intervals and the
guarantees, and leaves in DIR the two runs, results.json and curves.png: a few
of the unseen sinusoids with what was learned of them from ten points.

The same command again resumes what was interrupted.
"""

import dataclasses
import pathlib
from typing import Any

from absl import flags
import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.analysis import measure
from episodic_dp.cli import app
from episodic_dp.cli import devices
from episodic_dp.config import build
from episodic_dp.config.presets import sinusoid as config_lib
from episodic_dp.data import sinusoid
from episodic_dp.output import files
from episodic_dp.output import plotting
from episodic_dp.output import tables
from episodic_dp.training import reporting

CURVES = "curves.png"
RUNS = {"with privacy": "private=1", "without privacy": "private=0"}
_SHOWN = 6
_COLOURS = (plotting.BLUE, plotting.VERMILLION)


def main(workdir: str, arguments: str) -> None:
  """Trains, measures, prints and draws."""
  folder = pathlib.Path(workdir)
  results: dict[str, Any] = {}
  learned: dict[str, Any] = {}
  table: list[list[Any]] = []
  # The runs differ in the mechanism alone: they share data and evaluator.
  splits = evaluator = None
  for name, argument in RUNS.items():
    config = config_lib.get_config(f"{arguments},{argument}")
    experiment = build.build(config, splits=splits, evaluator=evaluator)
    splits, evaluator = experiment.splits, experiment.job.evaluator
    where = folder / name.replace(" ", "_")
    result = training.train(experiment.job, where)
    if result.stopped == "signal":
      print(reporting.summary(result, experiment.job.steps))
      return
    measured = measure.measure(
        str(where), splits=splits, evaluator=evaluator
    )
    params = last_params(experiment, where)
    before = unadapted(experiment, params)
    table += [[name, "not adapted", before, before.tasks, result.steps]]
    table += [[name, *row] for row in measure.rows(measured)]
    results[name] = reporting.result_entry(result, measured) | {
        "not_adapted": dataclasses.asdict(before)
    }
    learned[name] = params
    if experiment.config.mechanism.noise_multiplier:
      private = result
  files.write_json(folder / "results.json", results)
  draw(folder / CURVES, experiment, learned)
  print(tables.text(("run", *measure.header(measured)), table))
  print("guarantees of the private run:")
  print("\n".join(reporting.guarantee_lines(private.guarantees, private.steps)))


def last_params(experiment: build.Experiment, folder: pathlib.Path) -> Any:
  """The parameters of the last checkpoint of a run."""
  checkpoints = training.Checkpoints(folder, read_only=True)
  last = checkpoints.latest()
  assert last is not None  # The run is done.
  like = experiment.job.learner.init(jax.random.key(0))
  return checkpoints.restore(last, like)[0]


def unadapted(
    experiment: build.Experiment, params: Any
) -> training.Score:
  """The error on the test tasks' queries of the parameters as they are."""
  tasks = build.draw_tasks(experiment.config, experiment.splits.test,
                             test=True)
  points = experiment.splits.test.images[tasks.rows[:, 0]]
  query = points[:, tasks.episode.shot :].reshape(-1, 1, 1, 2)
  outputs = experiment.job.learner.model.apply(params, query[..., :1])
  errors = np.square(np.asarray(outputs)[:, 0] - query[:, 0, 0, 1])
  return training.interval(
      errors.reshape(len(tasks.rows), -1).mean(axis=1), training.SquaredError
  )


@plotting.styled
def draw(
    path: pathlib.Path,
    experiment: build.Experiment,
    learned: dict[str, Any],
) -> None:
  """A few test participants: curve, support points, and each run's guess."""
  shot, points = experiment.config.episode.shot, config_lib.POINTS
  options = experiment.config.data.options
  amplitude, phase = sinusoid.curves(
      options.test_participants, seed=options.seed, split="test"
  )
  x = np.linspace(*sinusoid.RANGE, 200, dtype=np.float32)
  held = experiment.splits.test.images.reshape(-1, points, 1, 1, 2)[:, :shot]
  predict = jax.jit(experiment.job.learner.predict)
  figure = plotting.figure(5.6, width=plotting.WIDE)
  for i, axes in enumerate(figure.subplots(2, _SHOWN // 2, sharey=True).flat):
    axes.plot(
        x, amplitude[i] * np.sin(x - phase[i]), color="grey", linestyle="-",
        linewidth=4, alpha=0.4, label="the participant's curve",
    )
    support = sampling.Examples(
        jnp.asarray(held[i, ..., :1]), jnp.asarray(held[i, :, 0, 0, 1:])
    )
    for colour, (name, params) in zip(_COLOURS, learned.items()):
      guess = predict(params, support, x.reshape(-1, 1, 1, 1))
      axes.plot(
          x, guess[:, 0], color=colour, linestyle="-", label=f"adapted, {name}"
      )
      plain = experiment.job.learner.model.apply(
          params, jnp.asarray(x.reshape(-1, 1, 1, 1))
      )
      axes.plot(
          x, plain[:, 0], color=colour, linewidth=0.8, linestyle=":",
          label=f"not adapted, {name}",
      )
    axes.plot(
        held[i, :, 0, 0, 0], held[i, :, 0, 0, 1], "k.",
        label=f"the {shot} points that are adapted to",
    )
  handles = axes.get_legend_handles_labels()
  figure.legend(*handles, loc="outside lower center", ncols=3)
  plotting.save(figure, path)


def _main(argv) -> None:
  del argv
  devices.log_devices()
  main(flags.FLAGS.workdir, flags.FLAGS.arguments)


if __name__ == "__main__":
  flags.DEFINE_string(
      "workdir", None, "Folder for the two runs; resumed if any.", required=True
  )
  flags.DEFINE_string(
      "arguments", "", "Further arguments of the config, such as steps=5."
  )
  app.run(_main)

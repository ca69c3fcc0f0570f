"""Trains on the built-in data with and without privacy, and compares.

  python -m experiments.main_job --workdir=DIR

Runs the preset glyphs twice (private=1 and private=0), measures
both on 600 test tasks of writers that neither run has seen, prints accuracy
with 95 % intervals and the guarantees for participant, glyph and drawing, and
leaves in DIR the two runs (with_privacy/ and without_privacy/, checkpoints
inside), results.json, learning_curve.png and epsilon_curve.png.

The same command again resumes what was interrupted.
"""

import pathlib
import time
from typing import Any

from absl import flags
from absl import logging

from episodic_dp import training
from episodic_dp.analysis import measure
from episodic_dp.cli import app
from episodic_dp.cli import devices
from episodic_dp.config import build
from episodic_dp.config.presets import glyphs
from episodic_dp.output import files
from episodic_dp.output import tables
from episodic_dp.training import metrics
from episodic_dp.training import plots
from episodic_dp.training import reporting

RUNS = {"with_privacy": "private=1", "without_privacy": "private=0"}

_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder for the two runs; resumed if any.", required=True
)
_ARGUMENTS = flags.DEFINE_string(
    "arguments", "", "Further arguments of the config, such as steps=5."
)


def main(argv) -> None:
  del argv
  devices.use_cores()
  devices.log_devices()
  began = time.monotonic()
  folder = pathlib.Path(_WORKDIR.value)
  results: dict[str, Any] = {}
  table: list[list[Any]] = []
  curves: list[plots.Curve] = []
  # The runs differ in the mechanism alone: they share data and evaluator.
  splits = evaluator = None
  for name, argument in RUNS.items():
    config = glyphs.get_config(f"{_ARGUMENTS.value},{argument}")
    logging.info("run %s", name)
    experiment = build.build(config, splits=splits, evaluator=evaluator)
    splits, evaluator = experiment.splits, experiment.job.evaluator
    result = training.train(experiment.job, folder / name)
    if result.stopped == "signal":
      print(reporting.summary(result, experiment.job.steps))
      return
    measured = measure.measure(
        str(folder / name), splits=splits, evaluator=evaluator
    )
    table += [[name, *row] for row in measure.rows(measured)]
    lines = metrics.read(folder / name / metrics.FILE)
    curves.append(plots.validation_curve(lines, label=name.replace("_", " ")))
    results[name] = reporting.result_entry(result, measured)
    if config.mechanism.noise_multiplier:
      private = result
      (folder / plots.EPSILON_CURVE).write_bytes(
          (folder / name / plots.EPSILON_CURVE).read_bytes()
      )
  chance = experiment.job.validation.chance
  assert chance is not None  # Glyphs are classes.
  plots.learning_curve(
      folder / plots.LEARNING_CURVE, curves, chance=chance
  )
  results["chance"] = chance
  results["seconds"] = round(time.monotonic() - began, 1)
  files.write_json(folder / "results.json", results)
  print(tables.text(("run", *measure.header(measured)), table))
  print(f"chance is {100 * chance:.0f} %; guarantees of the private run:")
  print("\n".join(reporting.guarantee_lines(private.guarantees, private.steps)))
  print(f"{results['seconds']:.0f} s; pictures and checkpoints in {folder}")


if __name__ == "__main__":
  app.run(main)

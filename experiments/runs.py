"""Runs that are compared: each trained in a folder of its own, then measured.

The engine of `experiments.reproduce`. A run is a preset with arguments and
overrides, so that it is also a command line of `episodic-dp train`. What was
finished is not done again, and what was interrupted goes on from its last
checkpoint.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import importlib
import json
import os
import pathlib
import shlex
import time
from typing import Any

from absl import logging
import ml_collections

from episodic_dp import data
from episodic_dp import training
from episodic_dp.analysis import measure
from episodic_dp.analysis import saved_weights
from episodic_dp.config import build
from episodic_dp.config import RunConfig
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.training import reporting
from episodic_dp.training import workdir as workdir_lib
from experiments import provenance

OUTCOME = "outcome.json"


class Interrupted(Exception):
  """A signal ended a run before its last step.

  Args:
    stopped: which, as a `training.Result` has it.
  """

  def __init__(self, stopped: str):
    super().__init__(stopped)
    self.stopped = stopped


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """One training run of a comparison.

  Attributes:
    name: of its folder.
    config: the name of a preset.
    arguments: what stands after the colon.
    overrides: "optimizer.rate" -> value, set in the config.
    labels: what tells it from the other runs, for tables.
    program: the command of `episodic-dp` that does it.
    start: a run without privacy on generated data, whose network this one
      begins with.
    shots: images of a class that it is tested with, beside those of its config.
    controls: whether an ensemble of untrained networks is tested too.
  """

  name: str
  config: str
  arguments: str = ""
  overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  labels: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  program: str = "train"
  start: "Run | None" = None
  shots: Sequence[int] = ()
  controls: bool = False

  def load(self) -> ml_collections.ConfigDict:
    """The config, as the command line would read it."""
    config = importlib.import_module(
        f"episodic_dp.config.presets.{self.config}"
    ).get_config(self.arguments)
    with config.unlocked():
      config.update_from_flattened_dict(dict(self.overrides))
    return config

  @property
  def generated(self) -> bool:
    """Whether its data are generated, and no folder of data is read."""
    return self.load().get("data", {}).get("name") in data.GENERATED

  def command(self) -> str:
    """The command that does the same, with DATA and DIR for the folders."""
    preset = self.config.rpartition(".")[2]
    if self.arguments:
      preset += f":{self.arguments}"
    flags = [
        shlex.quote(f"--config.{name}={value}")
        for name, value in self.overrides.items()
    ]
    return " ".join(
        [
            f"episodic-dp {self.program}",
            f"--config={preset}",
            *flags,
            *(["--config.model.start=START"] if self.start else []),
            *([] if self.generated else ["--data_dir=DATA"]),
            "--workdir=DIR",
        ]
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Computed(Run):
  """A part of a target that is computed or timed by its own code.

  Attributes:
    target: whose.
    scale: at which; another one gives another outcome.
  """

  config: str = ""
  target: str
  scale: str
  generated = False  # Its own code knows what it reads.

  def command(self) -> str:
    """The command that does the same, with DIR for the folder."""
    return (
        f"python -m experiments.reproduce --target={self.target}"
        f" --scale={self.scale} --only={self.name} --workdir=DIR"
    )


class Shared:
  """What several runs have in common: loaded once, compiled once."""

  def __init__(self) -> None:
    self._splits: dict[str, data.Splits] = {}
    self._evaluators: dict[str, training.Evaluator] = {}

  def build(self, config: RunConfig, **where: Any) -> build.Experiment:
    """`build.build` with data and evaluator of an earlier run like it."""
    parts = config.as_json()
    name = json.dumps(parts["data"], sort_keys=True)
    if name not in self._splits:
      self._splits[name] = build.load_data(config, **where)
    # Of what an evaluator is compiled for: the learner and its network.
    tested = json.dumps(
        [parts.get(k) for k in ("data", "model", "learner", "episode",
                                "fine_tuning")],
        sort_keys=True,
    )  # fmt: skip
    experiment = build.build(
        config,
        splits=self._splits[name],
        evaluator=self._evaluators.get(tested),
        **where,
    )
    if experiment.spec.evaluator is not None:
      self._evaluators[tested] = experiment.spec.evaluator
    return experiment


def finish(
    run: Run,
    folder: str | os.PathLike,
    *,
    shared: Shared,
    data_dir: str | None = None,
    download: bool = False,
    more: Callable[[build.Experiment, pathlib.Path], dict[str, Any]]
    | None = None,
) -> dict[str, Any]:
  """Trains and measures a run, unless that is done already.

  Args:
    run: what to do.
    folder: of all runs; this one takes FOLDER/NAME.
    shared: what earlier runs have loaded and compiled.
    data_dir: folder of the data sets that are not built in.
    download: fetch what data_dir does not have.
    more: what else is measured of the finished run, by its work directory.

  Returns:
    Its outcome, JSON-able: "labels", "command", "steps", "noise_multiplier",
    "seconds" and "cpu_seconds" of training (null where it took more than one
    process), "accuracy" (or "squared_error"): {"untrained", "single",
    "ensemble"}, each with its score on every task (`training.unpack`),
    for further shots the same in "tests": {shot: ...},
    "epsilon": level -> {"epsilon", "delta", "neighbours", "accountant"},
    "code" of all its processes, and what `provenance.of_run` and `more` add.

  Raises:
    Interrupted: a signal came; the same call goes on.
    RunError: the folder holds another run.
  """
  workdir = pathlib.Path(folder) / run.name
  done = load(run, folder)
  if done is not None:
    return done
  logging.info("run %s", run.name)
  source = run.load()
  if run.generated:  # Runs on other data may stand beside it.
    data_dir = None
  where: dict[str, Any] = dict(data_dir=data_dir, download=download)
  if run.start is not None:
    with source.unlocked():
      source.model.start = _weights(run.start, folder, shared, download)
  config = RunConfig.parse(source, data_dir=data_dir)
  with phases.phase("reading the data", at_once=True):
    experiment = shared.build(config, **where)
  resumed = (workdir / workdir_lib.CONFIG).exists()
  code = provenance.begin(workdir)
  cpu = time.process_time()
  result = training.train(experiment.spec, workdir)
  cpu = time.process_time() - cpu
  if result.stopped not in ("done", "budget"):
    raise Interrupted(result.stopped)
  measure_run = functools.partial(
      measure.measure,
      str(workdir),
      splits=experiment.splits,
      evaluator=experiment.spec.evaluator,
      controls=run.controls,
      **where,
  )
  measured = measure_run()
  score = measured["single"]["score"].name
  entry = reporting.result_entry(result, measured)
  if run.shots:
    entry["tests"] = {
        str(shot): reporting.result_entry(result, measure_run(shot=shot))[score]
        for shot in run.shots
    }
  entry |= provenance.of_run(workdir, score) | {
      "code": code,
      "labels": dict(run.labels),
      "command": run.command(),
      "seconds": None if resumed else round(result.seconds, 1),
      "cpu_seconds": None if resumed else round(cpu, 1),
      "noise_multiplier": experiment.spec.release.mechanism.noise_multiplier,
      **(more(experiment, workdir) if more else {}),
  }
  files.write_json(workdir / OUTCOME, entry)
  return entry


def _weights(
    run: Run, folder: str | os.PathLike, shared: Shared, download: bool
) -> str:
  """The file with the network of a run on generated data, which it trains."""
  path = pathlib.Path(folder) / f"{run.name}.safetensors"
  if not path.exists():
    finish(run, folder, shared=shared, download=download)
    saved_weights.save(path.with_suffix(""), path, download=download)
  return str(path.resolve())


def record(
    run: Run, folder: str | os.PathLike, entry: Mapping[str, Any]
) -> dict[str, Any]:
  """Writes the outcome of a run that its target finished, and returns it."""
  outcome = {
      "labels": dict(run.labels),
      "command": run.command(),
      "code": [provenance.code()],
      **entry,
  }
  files.write_json(pathlib.Path(folder) / run.name / OUTCOME, outcome)
  return outcome


def load(run: Run, folder: str | os.PathLike) -> dict[str, Any] | None:
  """The outcome of a run that is finished, or None.

  Raises:
    RunError: what lies there is the outcome of another command.
  """
  path = pathlib.Path(folder) / run.name / OUTCOME
  if not path.exists():
    return None
  try:
    entry = json.loads(path.read_text(encoding="utf-8"))
    command = entry["command"]
  except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
    raise training.RunError(
        f"{path} is damaged: remove it and run the same command again"
    ) from e
  if command != run.command():
    raise training.RunError(
        f"{path.parent} holds the outcome of another command ({command}):"
        " choose another --workdir, or remove that folder"
    )
  return entry

"""Runs of a comparison: each is trained in its folder, then measured.

The engine of `experiments.reproduce`. A run is a preset with arguments and
overrides, so it is also a command line of `episodic-dp train`. A finished run
is not repeated, and an interrupted one resumes from its last checkpoint. Its
outcome records code, configuration and statement, so that a reader can repeat
it.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import platform
import shlex
import subprocess
import time
from typing import Any

import jax

from episodic_dp import _version
from episodic_dp import data
from episodic_dp import plain
from episodic_dp import run as run_lib
from episodic_dp import training
from episodic_dp.analysis import measure
from episodic_dp.config import presets
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.training import metrics
from episodic_dp.training import reporting
from episodic_dp.training import workdir as workdir_lib

OUTCOME = "outcome.json"
ALONE = "one image a call"
"""How the queries of every accuracy come, in the outcomes that say so."""
ROOT = pathlib.Path(__file__).resolve().parent.parent
_DIAGNOSTICS = (
    "private/loss", "private/norm", "private/clipped", "private/clip_norm",
)
_LONG = 500  # Longest text of a hierarchy that is written in full.


class Interrupted(Exception):
  """A signal ended a run before its last step; `training.Result.stopped`."""


def check_done(stopped: str) -> None:
  """Raise `Interrupted` unless a training reached its end."""
  if stopped not in ("done", "budget"):
    raise Interrupted(stopped)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """One training run of a comparison.

  Attributes:
    name: name of its folder.
    config: name of a preset.
    arguments: text after the colon.
    overrides: "optimizer.rate" -> value, set in the config.
    labels: its differences from the other runs, for tables.
    program: the command of `episodic-dp` that does the same.
    further: (way, shot) of further test tasks, next to those of its config.
    controls: whether an ensemble of untrained networks is tested too.
    on_validation: whether it is measured on the classes for validation.
    together: whether it is measured by all queries of a task together too, for
      a paper that did so.
  """

  name: str
  config: str
  arguments: str = ""
  overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  labels: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  program: str = "train"
  further: Sequence[tuple[int, int]] = ()
  controls: bool = False
  on_validation: bool = False
  together: bool = False

  def load(self) -> run_lib.Run:
    """Return the described run, as the command line would read it."""
    preset = presets.load(f"{self.config}:{self.arguments}")
    return preset.replace(self.overrides)

  @functools.cached_property
  def generated(self) -> bool:
    """Return whether its data are generated, not read from a folder."""
    return self.program == "train" and (
        self.load().data.name in data.GENERATED
    )

  def command(self) -> str:
    """Return the command that does the same, with DATA and DIR for folders."""
    preset = self.config.rpartition(".")[2]
    if self.arguments:
      preset += f":{self.arguments}"
    words = [f"episodic-dp {self.program}", f"--config={preset}"]
    for name, value in self.overrides.items():
      words.append(shlex.quote(f"--config.{name}={value}"))
    if not self.generated:
      words.append("--data_dir=DATA")
    return " ".join([*words, "--workdir=DIR"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Computed(Run):
  """A part of a target that is computed or timed by its own code.

  Attributes:
    target: name of the target.
    scale: its scale; each scale has a separate outcome.
  """

  config: str = ""
  target: str
  scale: str
  generated = False  # Its own code knows what it reads.

  def command(self) -> str:
    """Return the command that does the same, with DIR for the folder."""
    return (
        f"python -m experiments.reproduce --target={self.target}"
        f" --scale={self.scale} --only={self.name} --workdir=DIR"
    )


class Shared:
  """Objects that several runs share: loaded and compiled once."""

  def __init__(self) -> None:
    self._made: dict[str, Any] = {}

  def made(self, name: str, make: Callable[[], Any]) -> Any:
    """Return the object of this name, made on the first call."""
    if name not in self._made:
      self._made[name] = make()
    return self._made[name]

  def build(
      self, config: run_lib.Run, **where: Any
  ) -> tuple[training.TrainingSpec, data.Splits]:
    """Call `Run.build` with data and evaluator of an earlier run like it."""
    parts = config.as_json()
    splits = self.made(
        json.dumps(parts["data"], sort_keys=True),
        lambda: config.data.load(**where),
    )
    # An evaluator is compiled for the learner and its network.
    tested = json.dumps([config.way, parts["plan"]["episode"], *(
        parts[name] for name in ("data", "model", "learner", "fine_tuning")
    )], sort_keys=True)
    spec = config.build(
        splits=splits, evaluator=self._made.get(tested), **where
    )
    self._made[tested] = spec.evaluator
    return spec, splits


def result_entry(
    result: training.Result, measured: Mapping[str, Any]
) -> dict[str, Any]:
  """Return a run's steps, accuracies and epsilons, JSON-able.

  Args:
    result: from `training.train`.
    measured: of `analysis.measure.measure`.
  """
  (kind,) = {value["score"].name for value in measured.values()}
  return plain.to_plain({
      "steps": result.steps,
      kind: {
          name: value["score"]
          for name, value in measured.items()
      },
      **{
          f"{kind}_transductive": {name: value["together"]}
          for name, value in measured.items()
          if "together" in value
      },
      "epsilon": {
          level: {
              "epsilon": g.epsilon,
              "delta": g.delta,
              "neighbours": g.neighbours,
              "accountant": g.accountant,
          }
          for level, g in result.guarantees.items()
      },
  })


def form(way: int, shot: int) -> str:
  """Return the words for a test task, a key of an outcome's "tests"."""
  return f"{way}-way {shot}-shot"


def sizes(words: str) -> tuple[int, int]:
  """Return (way, shot) of the words of `form`."""
  way, shot = words.removesuffix("-shot").split("-way ")
  return int(way), int(shot)


def finish(
    run: Run,
    folder: str | os.PathLike,
    *,
    shared: Shared,
    data_dir: str | None = None,
    download: bool = False,
) -> dict[str, Any]:
  """Train and measure a run.

  Args:
    run: its description.
    folder: folder of all runs; this one uses FOLDER/NAME.
    shared: objects that earlier runs have loaded and compiled.
    data_dir: folder of the data sets that are not built in.
    download: whether to fetch files that data_dir lacks.

  Returns:
    Its outcome, JSON-able: "labels", "command", "steps", "noise_multiplier",
    "seconds" and "cpu_seconds" of training (null if it took more than one
    process), "accuracy" (or "squared_error"): {"untrained", "single",
    "ensemble"}, each with its score on every task (`evaluation.decode_scores`),
    for further tasks the same in "tests": {`form`: ...},
    "epsilon": level -> {"epsilon", "delta", "neighbours", "accountant"},
    "code", "version", "queries" (`ALONE`), and the fields of `provenance`. With
    `Run.together` "accuracy_transductive" and "tests_transductive" have the
    scores of the last checkpoint by all queries of a task together.

  Raises:
    Interrupted: a signal arrived; the same call resumes.
    RunError: the folder holds another run.
  """
  workdir = pathlib.Path(folder) / run.name
  if run.generated:  # Runs on other data may be in the same target.
    data_dir = None
  where: dict[str, Any] = dict(data_dir=data_dir, download=download)
  config = run.load().resolved(data_dir)
  with phases.phase("reading the data", at_once=True):
    spec, splits = shared.build(config, **where)
  if run.on_validation:
    splits = dataclasses.replace(splits, test=splits.validation)
  resumed = (workdir / workdir_lib.CONFIG).exists()
  cpu = time.process_time()
  result = training.train(spec, workdir)
  cpu = time.process_time() - cpu
  check_done(result.stopped)
  measured_by = functools.partial(
      measure.measure,
      str(workdir),
      splits=splits,
      evaluator=spec.evaluator,
      controls=run.controls,
      together=run.together,
      **where,
  )
  measured = measured_by()
  score = measured["single"]["score"].name
  entry = result_entry(result, measured)
  alone, together = {}, {}
  for way, shot in run.further:
    evaluator = spec.evaluator if way == config.way else None
    found = result_entry(result, measured_by(
        task={"way": way, "shot": shot}, evaluator=evaluator
    ))
    alone[form(way, shot)] = found[score]
    together[form(way, shot)] = found.get(f"{score}_transductive")
  if run.further:
    entry["tests"] = alone
    if run.together:
      entry["tests_transductive"] = together
  entry |= provenance(workdir, score) | {
      "seconds": None if resumed else round(result.seconds, 1),
      "cpu_seconds": None if resumed else round(cpu, 1),
      "noise_multiplier": spec.release.mechanism.noise_multiplier,
  }
  return record(run, folder, entry)


def record(
    run: Run, folder: str | os.PathLike, entry: Mapping[str, Any]
) -> dict[str, Any]:
  """Write the outcome of a finished run, and return it."""
  outcome = {
      "code": [code()],
      "version": _version.__version__,
      "device": device(),
      "queries": ALONE,
      **entry,
      "labels": dict(run.labels),
      "command": run.command(),
  }
  files.write_json(pathlib.Path(folder) / run.name / OUTCOME, outcome)
  return outcome


def device() -> str:
  """Describe the devices of this process."""
  return (
      f"{jax.device_count()} x {jax.devices()[0].device_kind}"
      f" ({platform.machine()})"
  )


def load(run: Run, folder: str | os.PathLike) -> dict[str, Any] | None:
  """Return the outcome of a run, or None if it is not finished.

  Raises:
    RunError: the folder has the outcome of another command.
  """
  path = pathlib.Path(folder) / run.name / OUTCOME
  if not path.exists():
    return None
  entry = json.loads(path.read_text(encoding="utf-8"))
  if entry["command"] != run.command():
    raise training.RunError(
        f"{path.parent} holds the outcome of another command"
        f" ({entry['command']}): choose another --workdir, or remove that"
        " folder"
    )
  return entry


# Origin of a result -----------------------------------------------------------


@functools.cache
def code() -> str:
  """Return the commit of this tree, "-dirty" if tracked files changed.

  Outside a repository it is the version of the library.
  """
  # Not tags: a commit is found in any clone.
  command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty",
             "--abbrev=10", "--exclude=*"]
  if (ROOT / ".git").exists():
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
      return done.stdout.strip()
  return f"version {_version.__version__}"


def provenance(folder: pathlib.Path, score: str) -> dict[str, Any]:
  """Return what a finished run records next to its scores.

  Args:
    folder: its folder.
    score: the name of the validated score, such as "accuracy".

  Returns:
    "config", without a large tree, whose digest is "hierarchy"; "validation":
    {"steps", "values", "low", "high"} of the public validation tasks;
    "statement", the digest of its guarantee.json; and, if the run requested
    private diagnostics, which no guarantee covers, "diagnostics": {"loss",
    "norm", "clipped", "clip_norm"} of every step.
  """
  name = f"validation_{score}"
  # Without step 0, which the first outcomes lack and which costs nothing.
  lines = []
  for line in metrics.read(folder / metrics.FILE):
    if name in line and line["step"]:
      lines.append(line)
  config = json.loads((folder / workdir_lib.CONFIG).read_text("utf-8"))
  found: dict[str, Any] = {}
  tree = json.dumps(config.get("hierarchy"))
  if len(tree) > _LONG:  # The preset makes it.
    del config["hierarchy"]
    found["hierarchy"] = _digest(tree.encode())
  if config.get("model", {}).get("start"):
    config["model"]["start"] = pathlib.Path(config["model"]["start"]).name
  backbone = config.get("data", {}).get("options", {}).get("backbone")
  if backbone:
    backbone["file"] = pathlib.Path(backbone["file"]).name
  found |= {
      "config": config,
      "validation": {
          "steps": _column(lines, "step"),
          "values": _column(lines, name),
          "low": _column(lines, "validation_low"),
          "high": _column(lines, "validation_high"),
      },
      "statement": _digest((folder / reporting.GUARANTEE).read_bytes()),
  }
  diagnostics = metrics.read(
      folder / workdir_lib.PRIVATE / workdir_lib.DIAGNOSTICS
  )
  if diagnostics and config.get("private_diagnostics"):
    columns = found["diagnostics"] = {}
    for field in _DIAGNOSTICS:
      if field in diagnostics[0]:
        name = field.removeprefix("private/")
        columns[name] = _column(diagnostics, field)
  return found


def _column(lines: Sequence[Mapping[str, Any]], field: str) -> list[Any]:
  """Return a field of all lines, rounded to what a picture can show."""
  column = []
  for line in lines:
    value = line[field]
    if isinstance(value, float):
      value = float(f"{value:.5g}")
    column.append(value)
  return column


def _digest(content: bytes) -> str:
  return f"sha256:{hashlib.sha256(content).hexdigest()}"

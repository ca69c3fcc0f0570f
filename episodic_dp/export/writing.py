"""Write the folder of a trained run, completely or not at all.

It holds the releases of the run (parameters under noise) and public facts
(settings, sizes in the privacy statement, scores on public tasks). It holds no
key or seed, nothing of private/, and no name of a class or a file.
"""

from collections.abc import Mapping
import dataclasses
import os
import pathlib
from typing import Any, get_args, NamedTuple

import numpy as np

from episodic_dp import _version
from episodic_dp import data as data_lib
from episodic_dp import models
from episodic_dp import options as options_lib
from episodic_dp import plain
from episodic_dp import training
from episodic_dp.accounting import ledger as ledger_lib
from episodic_dp.accounting import statement as statement_lib
from episodic_dp.data import backbone as backbone_lib
from episodic_dp.errors import RunError
from episodic_dp.export import card as card_lib
from episodic_dp.export import folder as folder_lib
from episodic_dp.output import files
from episodic_dp.run import Run
from episodic_dp.training import reporting
from episodic_dp.training import workdir as workdir_lib

CHOICES = get_args(folder_lib.Choice)
_HELD = 2**25  # Most bytes of a backbone that the folder holds.
# Data sets whose loaders take single pixels of larger pictures.
_NEAREST = ("omniglot",)


class Exported(NamedTuple):
  """An exported folder.

  Attributes:
    description: the content of model.json.
    statement: the privacy statement.
    scores: on test tasks, or None if the run was not evaluated.
    backbone: the run's file of its backbone, or None.
  """

  description: folder_lib.Description
  statement: Any
  scores: card_lib.Scores | None
  backbone: str | None


def write(
    workdir: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    checkpoint: folder_lib.Choice = "last",
    without_guarantee: bool = False,
    beside: Mapping[str, bytes] | None = None,
) -> Exported:
  """Write a run as a folder that `Predictor.load` reads.

  Args:
    workdir: folder of a run with a checkpoint.
    out: the folder to make.
    checkpoint: "last", "best" (on public validation tasks) or "ensemble", up
      to five of the best.
    without_guarantee: whether to export a run without any guarantee.
    beside: name -> content of further files of the caller, or None.

  Raises:
    RunError, PlanError, OSError: the run cannot be exported, or the folder
      cannot be made; one sentence.
  """
  config = Run.read(workdir)
  if config.way < 2:
    raise RunError(
        "the run predicts numbers (way 1), but an exported model classifies:"
        " export a run with config.plan.episode.way of at least 2"
    )
  files.check_outside(out, workdir, "--workdir")
  path = workdir_lib.folder_of(workdir) / reporting.GUARANTEE
  verification = statement_lib.verify_file(path)
  verification.check(path)
  statement = verification.stated
  if not (without_guarantee or card_lib.has_guarantee(statement)):
    raise RunError(
        f"the run in {os.fspath(workdir)} has no privacy guarantee: no level"
        " has a finite epsilon, or its config fixes private_seed; to export it,"
        " with a card that says so, give without_guarantee=True (in a command"
        " --without_guarantee)"
    )
  checkpoints, steps = _chosen(workdir, checkpoint)
  _check_steps(path, statement, checkpoints, steps)
  moments = all(checkpoints.arrays(step, "rest/moments") for step in steps)
  network = _backbone(config)
  found = _described(config, checkpoint, steps, moments, network)
  scores = _scores(workdir, checkpoint, steps)
  with files.new_folder(out) as place:
    for name, step in zip(found.weights, steps):
      arrays = checkpoints.arrays(step) | {
          f"{folder_lib.MOMENTS}{name}": array
          for name, array in checkpoints.arrays(step, "rest/moments").items()
      }
      if not all(np.isfinite(array).all() for array in arrays.values()):
        raise RunError(
            f"the checkpoint of step {step} holds NaN or infinity: export"
            " another one with checkpoint='best' (in a command"
            " --checkpoint=best), or train with a smaller learning rate"
        )
      models.write_weights(place / name, arrays)
    if found.start is not None and config.model.start is not None:
      start = models.read_weights(config.model.start)
      models.write_weights(
          place / found.start,
          {name: np.asarray(a, np.float32) for name, a in start.items()},
      )
    if network is not None and _held(network):
      (place / folder_lib.BACKBONE).write_bytes(network.content)
    files.write_json(place / folder_lib.MODEL, plain.to_plain(found))
    (place / folder_lib.STATEMENT).write_bytes(path.read_bytes())
    files.write_text(
        place / folder_lib.CARD, card_lib.text(found, statement, scores)
    )
    for name, content in (beside or {}).items():
      (place / name).write_bytes(content)
    folder_lib.seal(place)
  file = None if network is None else network.place
  return Exported(found, statement, scores, file)


def _chosen(
    workdir: str | os.PathLike, checkpoint: str
) -> tuple[training.checkpoint.Checkpoints, tuple[int, ...]]:
  """Return the checkpoints of a run, and the steps of the exported ones."""
  checkpoints, last = training.checkpoint.latest(workdir)
  if checkpoint == "last":
    return checkpoints, (last,)
  best = tuple(step for step, _ in checkpoints.best())
  if not best:
    raise RunError(
        f"no checkpoint in {checkpoints.folder} was measured on validation"
        " tasks, so none is the best: export the last one"
    )
  if checkpoint == "best":
    best = best[:1]
  return checkpoints, best


def _check_steps(
    path: pathlib.Path,
    statement: Any,
    checkpoints: training.checkpoint.Checkpoints,
    steps: tuple[int, ...],
) -> None:
  """Raise RunError unless the statement covers the exported steps.

  A statement of another run would verify too, so its steps must be those of
  these weights.
  """
  stated = ledger_lib.Ledger.from_dict(statement).entries
  for step in steps:
    spent = ledger_lib.Ledger.from_dict(checkpoints.about(step)["ledger"])
    for entry in spent.entries:
      if not any(
          entry.same_description(other)
          and other.steps >= entry.steps
          for other in stated
      ):
        raise RunError(
            f"{path} does not cover the {step} steps of the checkpoint"
            f" {checkpoints.folder / str(step)}: resume the run, which writes"
            " it again"
        )


def _scores(
    workdir: str | os.PathLike, checkpoint: str, steps: tuple[int, ...]
) -> card_lib.Scores | None:
  """Return the result of `episodic-dp evaluate` for these checkpoints."""
  path = workdir_lib.folder_of(workdir) / reporting.EVALUATION
  if not path.exists():
    return None
  name = "single"
  if checkpoint == "ensemble":
    name = "ensemble"
  found = files.read_json(path, "evaluate the run again").get(name, {})
  if found.get("steps") != [*steps]:
    return None
  return found["accuracy"]


def _held(network: backbone_lib.Network) -> bool:
  """Return whether the folder holds the file of a backbone."""
  return len(network.content) <= _HELD


def _described(
    config: Run,
    checkpoint: folder_lib.Choice,
    steps: tuple[int, ...],
    moments: bool,
    network: backbone_lib.Network | None,
) -> folder_lib.Description:
  """Describe a run with the chosen checkpoints."""
  model = config.model
  supervised = config.learner.name == options_lib.SUPERVISED
  weights: tuple[str, ...] = ("weights.safetensors",)
  if len(steps) > 1:
    weights = tuple(f"weights_{i}.safetensors" for i in range(len(steps)))
  backbone = None
  if network is not None:
    assert config.data.shape is not None  # A run records it.
    backbone = dataclasses.replace(
        network.backbone,
        file=folder_lib.BACKBONE if _held(network) else "",
        features=config.data.shape[0],
    )
  # Training may change only a part of the start, and adds the rest.
  partly = model.start is not None and model.trained != "all"
  return folder_lib.Description(
      format=folder_lib.FORMAT,
      written_by=f"episodic_dp {_version.__version__}",
      data=config.data.name,
      network=dataclasses.replace(
          model, outputs=config.outputs, start=None, start_digest=None,
          trained=model.trained if model.start else "all",
      ),
      learner=config.learner,
      fine_tuning=config.fine_tuning if supervised else None,
      preprocessing=_preprocessing(config, network),
      way=config.way,
      shot=config.evaluation.shot,
      checkpoint=checkpoint,
      steps=steps,
      weights=weights,
      start=folder_lib.START if partly else None,
      moments=moments,
      backbone=backbone,
      mirror=config.augmentation.flip,
  )


def _backbone(config: Run) -> backbone_lib.Network | None:
  """Open the backbone of a run's own data, if there is one."""
  if config.data.backbone is None:
    return None
  options = data_lib.read_options(config.data.name, config.data.options)
  network: backbone_lib.Network = options.backbone.opened()
  return network


def _preprocessing(
    config: Run, network: backbone_lib.Network | None
) -> folder_lib.Preprocessing:
  """Describe how the run made its rows, of images before a backbone."""
  data = config.data
  if network is not None:
    return folder_lib.Preprocessing(
        kind="image", shape=network.shape, dtype="uint8", resample="bilinear"
    )
  assert data.shape is not None and data.dtype is not None  # Training does.
  # Own data of more than 8 bits are images, too.
  image = data.dtype == "uint8" or len(data.shape) == 3
  return folder_lib.Preprocessing(
      kind="image" if image else "features",
      shape=data.shape,
      dtype=data.dtype,
      resample="nearest" if data.name in _NEAREST else "bilinear",
  )

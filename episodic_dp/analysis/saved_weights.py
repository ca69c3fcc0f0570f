"""Save the network of a run as weights, to start another run from."""

import math
import os

from absl import logging
import jax

from episodic_dp import errors
from episodic_dp import models
from episodic_dp.models.model import Params
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.run import Run
from episodic_dp.training import checkpoint
from episodic_dp.training import reporting

# Parameters that learners have in addition to a network.
_OTHERS = {"rates", "log_ridge", "log_scale"}


def of_network(params: Params) -> Params:
  """Return the network's parameters among those of a learner."""
  return params["model"] if _OTHERS & set(params) else params


def save(
    workdir: str | os.PathLike,
    path: str | os.PathLike,
    *,
    data_dir: str | None = None,
    download: bool = False,
) -> None:
  """Write the network of a run's last checkpoint, with its frozen weights.

  Weights of a private run may be published, and can start a run on other people
  at no cost. On the same people the costs of both runs add up (`episodic-dp
  account --ledger`). A run without a guarantee gets a warning.

  Args:
    workdir: folder of a run with a checkpoint.
    path: path of the file, .npz or .safetensors; `config.model.start` reads it.
    data_dir: folder of the run's data, whose shape is read.
    download: whether to fetch files that data_dir lacks.

  Raises:
    RunError: there is no run or no checkpoint, or it is not one network.
    PlanError: another type of file.
  """
  config = Run.read(workdir)
  start = config.model.start
  place = os.path.realpath(files.path_of(path))
  if start is not None and place == os.path.realpath(start):
    raise errors.RunError(
        f"{os.fspath(path)} is the start of the run in {workdir}, and its"
        " checkpoints are useless without it: give another name"
    )
  if config.learner.per_step_norm:
    raise errors.RunError(
        f"the run in {workdir} has learner.per_step_norm=True, separate norms"
        " for every inner step, so it is not one network: train"
        " without it"
    )
  checkpoints, last = checkpoint.latest(workdir)
  stated = reporting.guarantees(workdir, "epsilon")
  bounds = [float(level["epsilon"]) for level in stated.values()]
  if config.private_seed is not None or not any(map(math.isfinite, bounds)):
    logging.warning(
        "the run in %s has no privacy guarantee: do not publish its weights,"
        " unless its data are public",
        os.fspath(workdir),
    )
  with phases.phase("reading the data"):
    splits = config.data.load(data_dir=data_dir, download=download)
  learner, _ = config.make_learners(
      splits.test.image_shape, splits.validation
  )
  params, _ = checkpoints.restore(last, learner.init(jax.random.key(0)))
  params = of_network(params)
  whole = learner.model.whole
  if whole is not None:
    params = whole(params)
  models.write_weights(path, params)

"""Runs with random parameters, as if trained under a secret key."""

import pathlib
import shutil
from typing import NamedTuple

import jax
import pytest

from episodic_dp import accounting
from episodic_dp import data
from episodic_dp import run as run_lib
from episodic_dp import training
from episodic_dp.export import writing
from episodic_dp.output import files
from episodic_dp.training import reporting
from episodic_dp.training import workdir
from tests.cli import tiny_runs


class Run(NamedTuple):
  """A work directory, its data, and the folder that was exported."""

  workdir: pathlib.Path
  splits: data.Splits
  model: pathlib.Path


def save_run(config: run_lib.Run, folder, splits, steps=2, quality=None):
  """A work directory as of a run that was trained; nothing in it is."""
  config = config.replace({"private_seed": None})
  folder.mkdir(parents=True, exist_ok=True)
  example = {
      "data.shape": [*splits.test.image_shape],
      "data.dtype": str(splits.test.images.dtype),
  }
  files.write_json(
      folder / workdir.CONFIG, config.replace(example).as_json()
  )
  learner, _ = config.make_learners(
      splits.test.image_shape, splits.validation
  )
  checkpoints = training.checkpoint.Checkpoints(folder)
  ledger = accounting.Ledger().add(config.release, steps, continued=False)
  params = learner.init(jax.random.key(steps))
  moments = jax.jit(learner.public_moments)(params)
  checkpoints.save(
      steps,
      params,
      {"step": 0} | ({} if moments is None else {"moments": moments}),
      ledger=ledger.as_dict(),
      quality=quality,
  )
  state(config, folder, steps)


def export_run(config, root, splits):
  """The model, below a folder, of a run that is saved there."""
  save_run(config, root / "run", splits)
  writing.write(root / "run", root / "model")
  return root / "model"


def state(config, folder, steps):
  """Writes the privacy statement of a number of steps."""
  ledger = accounting.Ledger().add(config.release, steps, continued=False)
  files.write_json(
      folder / reporting.GUARANTEE, accounting.run_statement(ledger, delta=1e-5)
  )


@pytest.fixture(scope="session")
def run(tmp_path_factory):
  root = tmp_path_factory.mktemp("export")
  splits = tiny_runs.splits()
  config = tiny_runs.maml_config()
  save_run(config, root / "secret-place", splits)
  writing.write(root / "secret-place", root / "model")
  return Run(root / "secret-place", splits, root / "model")


@pytest.fixture
def model(run, tmp_path):
  """A copy of the exported folder, to be damaged."""
  return shutil.copytree(run.model, tmp_path / "model")

"""A run of seconds that any launcher can start, and what it ends with."""

import pathlib
import time

import jax
import numpy as np

from episodic_dp import training
from episodic_dp.run import Run
from episodic_dp.training import metrics
from episodic_dp.training import workdir as workdir_lib
from tests import processes

ROOT = processes.ROOT
STEPS = 100  # Some seconds, so that it is stopped before its end.
# A perceptron; its noise is that of a key which everyone knows.
TRAIN = (
    "train",
    f"--config=sinusoid:participants=64,rate=0.1,steps={STEPS},width=4",
    "--config.data.options.validation_participants=10",
    "--config.data.options.test_participants=10",
    "--config.evaluation.validation_tasks=8",
    "--config.evaluation.test_tasks=8",
    "--config.evaluation.every=20",
    "--config.checkpoint_every=1",
    "--config.private_seed=3",
)


def uninterrupted(folder):
  """The parameters of a run of one process that nothing disturbs."""
  processes.printed("-m", "episodic_dp", *TRAIN, f"--workdir={folder}")
  return _params(folder)


def _params(folder):
  """All parameters after the last step, in one array."""
  config = Run.parse(workdir_lib.read_config(folder))
  learner, _ = config.make_learners((1, 1, 1), None)
  checkpoints = training.checkpoint.Checkpoints(folder)
  like = learner.init(jax.random.key(0))
  found, _ = checkpoints.restore(STEPS, like)
  return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)])


def assert_same(folder, expected):
  """The run in a folder ends with these parameters, to rounding."""
  found = _params(folder)
  assert np.linalg.norm(found - expected) < 1e-5 * np.linalg.norm(expected)


def steps(folder):
  """Return the number of steps that have left a line."""
  path = pathlib.Path(folder) / metrics.FILE
  # The first line is that of step 0.
  return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def wait_for_steps(folder, count, seconds=120):
  end = time.monotonic() + seconds
  while steps(folder) < count:
    assert time.monotonic() < end, f"{folder} has {steps(folder)} steps"
    time.sleep(0.05)

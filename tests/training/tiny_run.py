"""A run of milliseconds: a linear model on three synthetic classes."""

import dataclasses
import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import data
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import training
from episodic_dp.training import reporting
from episodic_dp.training import resume
from tests import plans

WAY, SHOT, QUERY, SIDE = 3, 1, 2, 4
CHECKPOINT_EVERY, EVALUATE_EVERY = 4, 12
_ADAM = optax.adam(0.01)
LEVELS = ("participant", "class", "image")


@functools.cache
def dataset(seed=0, participants=20):
  """Classes are noisy prototypes that participants share."""
  rng = np.random.default_rng(seed)
  prototypes = rng.integers(0, 256, (participants, WAY, 1, SIDE, SIDE, 1))
  noise = rng.integers(-40, 40, (participants, WAY, 4, SIDE, SIDE, 1))
  images = np.clip(prototypes + noise, 0, 255).astype(np.uint8)
  return data.ArrayDataset(
      name="tiny",
      images=images.reshape(-1, SIDE, SIDE, 1),
      hierarchy=plans.tree(LEVELS, participants, WAY, 4),
  )


@functools.cache
def validation():
  """Ten tasks of other participants."""
  return training.sample_tasks(
      dataset(1), way=WAY, shot=SHOT, query=QUERY, count=10, seed=3
  )


@functools.cache
def learner():
  """MAML on a linear model."""

  def init(key):
    return {"w": 0.1 * jax.random.normal(key, (SIDE * SIDE, WAY))}

  def apply(params, images):
    flat = images.reshape(images.shape[0], -1)
    return jnp.asarray(flat, jnp.float32) @ params["w"]

  model = models.Model(
      init, apply, mixes_examples=False, input_shape=(SIDE, SIDE, 1), way=WAY
  )
  return learners.MAML(model, inner_steps=1, inner_rate=0.5)


@functools.cache
def evaluator():
  """Compiled once for all runs of a process."""
  return training.Evaluator(learner())


def spec(
    steps,
    *,
    train=None,
    noise_multiplier=1.0,
    mechanism=None,
    diagnostics=False,
    seed=7,
    **options,
):
  """A spec of `steps` steps; options overwrite its fields."""
  train = train or dataset()
  result = training.TrainingSpec(
      train=train,
      validation=validation(),
      release=plan.Release(
          train.hierarchy,
          plans.sampling(0.2, WAY, 3, way=WAY, shot=SHOT, query=QUERY),
          mechanism
          or plan.Mechanism(
              clip_unit="participant", noise_multiplier=noise_multiplier
          ),
      ),
      learner=learner(),
      optimizer=_ADAM,
      steps=steps,
      delta=1e-5,
      private_seed=seed,
      compute=private.Compute(diagnostics=diagnostics),
      evaluate_every=EVALUATE_EVERY,
      checkpoint_every=CHECKPOINT_EVERY,
      evaluator=evaluator(),
      config={"steps": steps, "z": noise_multiplier, "private_seed": seed},
  )
  return dataclasses.replace(result, **options)


# Runs with equal parts share one compiled step and the digest of its program.
_made, _digested = functools.cache(private.make_meta_step), {}


def _digest(function, *arguments, digest=resume.program_digest):
  (program,) = function.args
  if program not in _digested:
    _digested[program] = digest(function, *arguments)
  return _digested[program]


def train(a_spec, workdir, **options):
  """As `training.train`, without pictures; equal programs are compiled once."""
  with (
      mock.patch.object(reporting, "learning_curve"),
      mock.patch.object(reporting, "epsilon_curve"),
      mock.patch.object(private, "make_meta_step", _made),
      mock.patch.object(training.meta_training.MetaTraining, "compile"),
      mock.patch.object(resume, "program_digest", _digest),
  ):
    return training.train(a_spec, workdir, **options)


class Killed(BaseException):
  """End of a run at a moment, with nothing saved any more."""


def kill(a_spec, workdir, step, **options):
  """Train until after a step, and no further."""

  def end(line):
    if line["step"] == step:
      raise Killed

  try:
    train(a_spec, workdir, callbacks=[end], **options)
  except Killed:
    return
  raise AssertionError(f"the run did not reach step {step}")


def final_params(workdir):
  """The last checkpoint's parameters and its step."""
  checkpoints = training.checkpoint.Checkpoints(workdir)
  like = learner().init(jax.random.key(0))
  step = checkpoints.latest()
  return checkpoints.restore(step, like)[0], step

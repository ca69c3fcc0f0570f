"""Fields that every training config has, so that files show what differs."""

import math
from typing import Any

import ml_collections
from ml_collections import config_dict


def base() -> ml_collections.ConfigDict:
  """Defaults; a config file overwrites what its experiment sets."""
  c = ml_collections.ConfigDict()
  c.seed = 0  # Public: the initial parameters.
  # An integer makes a run reproducible, and its guarantee void for whoever
  # knows the number.
  c.private_seed = config_dict.placeholder(int)
  c.delta = 1e-5
  c.target_epsilon = config_dict.placeholder(float)
  c.privacy_unit = config_dict.placeholder(str)
  c.checkpoint_every = 25
  # Training loss and the like, which no guarantee covers; in WORKDIR/private.
  c.private_diagnostics = False
  c.model = model(width=64, norm="batch", library="flax")
  c.learner = ml_collections.ConfigDict(
      dict(
          name="maml",  # Which options a learner reads: learners.make_learner.
          inner_steps=5,
          inner_rate=0.1,
          order="second",
          learned_rates=False,
          per_step_norm=False,
          multi_step_loss=0,
          ridge=1.0,
          ridge_scale=10.0,
          metric="euclidean",  # Of protonet; or cosine, with a learned scale.
          metric_scale=1.0,
      )
  )
  c.optimizer = ml_collections.ConfigDict(
      dict(
          name="adam",
          rate=0.01,
          final_rate=0.001,
          warm_up=0,
          momentum=config_dict.placeholder(float),
          second_momentum=config_dict.placeholder(float),
          average=0.0,
      )
  )
  # While training, inside the task that is clipped: models.Augmentation.
  c.augmentation = ml_collections.ConfigDict(
      dict(shift=0, flip=False, colour=0.0, draws=1)
  )
  c.evaluation = ml_collections.ConfigDict(
      dict(
          shot=1,
          query=1,
          every=25,
          validation_tasks=100,
          test_tasks=600,
          seed=1,  # Public.
      )
  )
  # resident=False leaves the images on the host, for data larger than the
  # device; the same up to rounding. devices: how many share the tasks of a step
  # out, or all of them (None); a CPU counts as one for every core.
  # microbatch_size: tasks that each computes together; None for 1 on a CPU and
  # what the memory of another device suits.
  c.compute = ml_collections.ConfigDict(
      dict(
          microbatch_size=config_dict.placeholder(int),
          resident=True,
          devices=config_dict.placeholder(int),
      )
  )
  return c


def model(**options: Any) -> ml_collections.ConfigDict:
  """The section of the network: these fields set, and those that may be.

  Args:
    **options: see `sections.Model`, which says what a network of no name is.
  """
  unset = dict(
      name=config_dict.placeholder(str),
      widths=config_dict.placeholder(tuple),
      outputs=config_dict.placeholder(int),
      start=config_dict.placeholder(str),
      start_digest=config_dict.placeholder(str),
      trained=config_dict.placeholder(str),
      rank=config_dict.placeholder(int),
  )
  return ml_collections.ConfigDict(unset | options)


def supervised(way: int, classes: int) -> ml_collections.ConfigDict:
  """`base` for a plan without an episode: one network for all classes.

  Args:
    way: classes of a validation or test task, which a head of its own is
      trained for.
    classes: of the training data.
  """
  c = base()
  c.learner = ml_collections.ConfigDict(dict(name="supervised"))
  # Single examples are clipped: batch normalisation would mix them.
  c.model.norm = "group"
  c.model.outputs = classes
  c.evaluation.way = way
  # What a test task does with its support set: learners.make_fine_tuning.
  c.fine_tuning = ml_collections.ConfigDict(
      dict(steps=30, rate=0.1, body=False, optimizer="sgd")
  )
  c.compute.microbatch_size = 16  # Examples whose gradients are held at once.
  return c


def mechanism(
    private: bool, *, clip_unit: str, **options: Any
) -> config_dict.ConfigDict:
  """A mechanism; without privacy neither clipping nor noise is left."""
  # Fields of clip norms that adapt, to be set from the command line too.
  adaptive = dict(
      clipping="fixed",
      clip_quantile=config_dict.placeholder(float),
      clip_rate=config_dict.placeholder(float),
      count_noise=config_dict.placeholder(float),
      clip_percentile=config_dict.placeholder(float),
      clip_window=config_dict.placeholder(int),
  )
  if not private:
    options = {k: v for k, v in options.items() if k not in adaptive}
    options |= dict(clip_norm=math.inf, noise_multiplier=0.0)
  return ml_collections.ConfigDict(
      dict(clip_unit=clip_unit, clip_by="global") | adaptive | options
  )

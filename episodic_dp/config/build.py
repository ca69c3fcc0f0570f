"""Builders of the objects that a RunConfig describes.

The accountant reads the release of the config too: the sampled plan is the
accounted plan. The data are loaded separately, and a hierarchy that differs
from the config's is refused.
"""

import dataclasses
import os
from typing import Any

import numpy as np
import optax

from episodic_dp import _validate
from episodic_dp import data
from episodic_dp import errors
from episodic_dp import learners
from episodic_dp import options
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp import training
from episodic_dp.config import networks
from episodic_dp.config import run_config
from episodic_dp.config.run_config import RunConfig
from episodic_dp.learners import naming
from episodic_dp.plan import validation as validation_lib
from episodic_dp.private import state as state_lib
from episodic_dp.training import evaluation


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
  """The run that a config describes, and the data to test it on."""

  spec: training.TrainingSpec
  splits: data.Splits
  config: RunConfig


def build(
    config: RunConfig,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
    splits: data.Splits | None = None,
    evaluator: training.Evaluator | None = None,
) -> Experiment:
  """Load the data and build everything that a run needs.

  Args:
    config: parsed config; for own data, parsed with the same data_dir.
    data_dir: folder of the data sets that are not built in, or own data.
    download: fetch what data_dir does not have.
    splits: loaded data; None loads them.
    evaluator: evaluator of an equal learner, which is then compiled once.

  Raises:
    PlanError, UnsoundPlanError, RunError, ValueError, FileNotFoundError: one
      sentence with the remedy.
  """
  check(config)  # Needs no data.
  assert config.delta is not None  # `RunConfig.parse` computed it.
  splits = splits or load_data(config, data_dir=data_dir, download=download)
  splits = dataclasses.replace(splits, train=_training_data(config, splits))
  shape = splits.train.image_shape
  learner = make_learner(config, shape)
  evaluated = make_evaluation_learner(config, learner, shape)
  whole = splits.train.images.dtype == np.uint8
  example = dataclasses.replace(
      config.data, shape=shape, dtype="uint8" if whole else "float32"
  )
  with_example = dataclasses.replace(config, data=example)
  spec = training.TrainingSpec(
      train=splits.train,
      validation=draw_tasks(config, splits.validation, test=False),
      release=config.release,
      learner=learner,
      optimizer=make_optimizer(config),
      steps=config.steps,
      privacy_unit=config.privacy_unit,
      delta=config.delta,
      seed=config.seed,
      private_seed=config.private_seed,
      compute=_compute(config),
      devices=config.compute.devices,
      evaluate_every=config.evaluation.every,
      checkpoint_every=config.checkpoint_every,
      evaluator=evaluator or training.Evaluator(evaluated),
      config=networks.recorded(with_example, learner.model),
  )
  return Experiment(spec=spec, splits=splits, config=config)


def check(config: RunConfig) -> None:
  """Refuse a config that `build` refuses, without reading data.

  Raises:
    PlanError, UnsoundPlanError, RunError, ValueError: one sentence.
  """
  config.check_complete()
  networks.check(config.model)
  if config.survey is not None:
    for part in ("validation", "test"):
      tree = config.survey.hierarchies[part]
      run_config.check_sizes(
          config.survey, part, lambda tree=tree: _task_plan(config, tree)
      )


def _task_plan(
    config: RunConfig, hierarchy: plan_lib.Hierarchy
) -> plan_lib.SamplingPlan:
  return validation_lib.task_plan(
      hierarchy,
      way=config.way,
      shot=config.evaluation.shot,
      query=config.evaluation.query,
      classes=_classes(config, hierarchy),
  )


def make_learner(
    config: RunConfig, image_shape: tuple[int, ...]
) -> learners.Learner:
  """Build the learner of `config.learner` on `networks.make_model`."""
  supervised = config.learner.name == options.SUPERVISED
  return naming.by_name(
      config.learner,
      networks.make_model(config, image_shape),
      way=None if supervised else config.way,
  )


def make_evaluation_learner(
    config: RunConfig, learner: learners.Learner, image_shape: tuple[int, ...]
) -> learners.Learner:
  """Build the learner of validation and test tasks.

  It is the learner itself; or, for a learner of examples, fine-tuning with a
  new head for every task.
  """
  if config.learner.name != options.SUPERVISED:
    return learner
  return naming.make_fine_tuning(
      networks.make_model(config, image_shape, way=config.way),
      config.fine_tuning,
  )


def make_optimizer(config: RunConfig) -> optax.GradientTransformation:
  """Build Adam or SGD with a cosine schedule, and the average of its iterates.

  Raises:
    PlanError: the warm-up leaves no step.
  """
  chosen, steps = config.optimizer, config.steps
  if chosen.warm_up >= steps:
    raise _validate.refusal(
        "config.optimizer.warm_up", chosen.warm_up, f"less than {steps} steps"
    )
  schedule = optax.cosine_decay_schedule(
      chosen.rate, steps, alpha=chosen.final_rate / chosen.rate
  )
  if chosen.warm_up:
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, chosen.rate, chosen.warm_up, steps, chosen.final_rate
    )
  moments = {"b1": chosen.momentum, "b2": chosen.second_momentum}
  if chosen.name == "sgd":
    moments = {"momentum": chosen.momentum}
  optimizer = naming.OPTIMIZERS[chosen.name](
      schedule, **{k: v for k, v in moments.items() if v is not None}
  )
  if not chosen.average:
    return optimizer
  return state_lib.averaged(optimizer, chosen.average)


def load_data(
    config: RunConfig,
    *,
    data_dir: str | os.PathLike[str] | None,
    download: bool = False,
) -> data.Splits:
  """Load the data set of `config.data`; own data are not listed again."""
  return data.load(
      config.data.name,
      data_dir=data_dir,
      download=download,
      surveyed=config.survey,
      **config.data.options,
  )


def draw_tasks(
    config: RunConfig, dataset: data.Dataset, *, test: bool
) -> evaluation.Tasks:
  """Draw the fixed validation or test tasks of the config."""
  chosen = config.evaluation
  return training.draw(
      dataset,
      way=config.way,
      shot=chosen.shot,
      query=chosen.query,
      classes=_classes(config, dataset.hierarchy),
      count=chosen.test_tasks if test else chosen.validation_tasks,
      seed=chosen.seed + int(test),
  )


def _classes(
    config: RunConfig, hierarchy: plan_lib.Hierarchy
) -> str | None:
  """Return the level of a task's classes in training, where the tree has it."""
  found = config.episode.classes if config.episode is not None else None
  return found if found in hierarchy.levels else None


def _compute(config: RunConfig) -> private.Compute:
  chosen: dict[str, Any] = {"noise_terms": config.compute.noise_terms}
  if config.compute.microbatch_size is not None:
    chosen["microbatch_size"] = config.compute.microbatch_size
  return private.Compute(diagnostics=config.private_diagnostics, **chosen)


def _training_data(config: RunConfig, splits: data.Splits) -> data.ArrayDataset:
  """Return the training data as the release describes them."""
  train, release = splits.train, config.release
  if release.plan.episode is None:
    train = data.as_examples(train)
  train = with_copies(train, release.hierarchy)
  check_same_tree(release.hierarchy, train.hierarchy)
  return dataclasses.replace(train, resident=config.compute.resident)


def check_same_tree(
    described: plan_lib.Hierarchy, loaded: plan_lib.Hierarchy
) -> None:
  """Refuse data whose sizes differ from those that are accounted.

  Raises:
    RunError: one sentence with both.
  """
  if not described.same_tree(loaded):
    raise errors.RunError(
        f"the config describes {described} and the data are {loaded}: the"
        " guarantee would be of another sampler; make config.hierarchy and"
        " config.data.options agree"
    )


def with_copies(
    train: data.ArrayDataset, described: plan_lib.Hierarchy
) -> data.ArrayDataset:
  """Return the data with the config's counts of copies, which are checked.

  Raises:
    PlanError: a record recurs more often than the config says.
    RunError: the data cannot be counted.
  """
  if described.most_copies in (None, train.hierarchy.most_copies):
    return train
  if train.count_copies is None:
    raise errors.RunError(
        f"most_copies {described.most_copies} cannot be checked: the data"
        f" '{train.name}' are no synthetic participants; leave it out"
    )
  found = train.count_copies()
  for level, stated in zip(described.levels, described.most_copies):
    if 0 < stated < found.get(level, 1):
      raise plan_lib.PlanError(
          f"most_copies {stated} of level '{level}' is too small: one {level}"
          f" is held by {found[level]} units of level"
          f" '{described.levels[0]}'; state {found[level]}"
      )
  counted = dataclasses.replace(
      train.hierarchy, most_copies=described.most_copies
  )
  return dataclasses.replace(train, hierarchy=counted)

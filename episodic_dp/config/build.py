"""Build the objects that a RunConfig describes.

The accountant reads the release of the same config: the sampled plan is the
accounted plan. The data are loaded separately, and a hierarchy that differs
from the config's is refused.
"""

import dataclasses
import functools
import os

import numpy as np

from episodic_dp import backends
from episodic_dp import data
from episodic_dp import learners
from episodic_dp import options
from episodic_dp import private
from episodic_dp import training
from episodic_dp.config.run_config import RunConfig
from episodic_dp.data import public
from episodic_dp.learners import naming
from episodic_dp.models import builder
from episodic_dp.models import parts
from episodic_dp.output import files
from episodic_dp.private import state as state_lib
from episodic_dp.training import resume


def build(
    config: RunConfig,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
    splits: data.Splits | None = None,
    train: data.ArrayDataset | None = None,
    evaluator: training.Evaluator | None = None,
) -> training.TrainingSpec:
  """Build a run: its data, network, learner, optimizer and release.

  Args:
    config: parsed config; for own data, parsed with the same data_dir.
    data_dir: folder of the data sets that are not built in, or own data.
    download: whether to fetch files that data_dir lacks.
    splits: loaded data; None loads them.
    train: training data only, for a run without validation.
    evaluator: evaluator of an equal learner, which saves a compilation.

  Raises:
    PlanError, UnsoundPlanError, RunError, ValueError, FileNotFoundError: one
      sentence with the remedy.
  """
  config.check_complete()
  assert config.delta is not None  # `RunConfig.parse` computed it.
  tasks, validation, validation_digest = config.evaluation, None, None
  if train is None:
    if splits is None:
      splits = config.data.load(data_dir=data_dir, download=download)
    train = splits.train
    validation_digest = resume.data_digest(splits.validation)
    validation = training.sample_tasks(
        splits.validation,
        count=tasks.validation_tasks,
        seed=tasks.seed,
        **config.task,
    )
  if config.episode is None:
    train = data.as_examples(train)
  train = train.with_copies(config.release.hierarchy)
  mesh = training.make_mesh(config.compute.devices)
  optimizer = state_lib.make_optimizer(config.optimizer, config.steps)
  learner, evaluated = make_learners(
      config, train.image_shape, splits.validation if splits else None
  )
  # What later commands read, from any folder.
  start = config.model.start
  if start is not None and start not in parts.SHIPPED:
    start = str(files.path_of(start).absolute())
  recorded = dataclasses.replace(
      config,
      model=dataclasses.replace(
          config.model, start=start, start_digest=learner.model.start
      ),
      data=dataclasses.replace(
          config.data,
          shape=train.image_shape,
          dtype="uint8" if train.images.dtype == np.uint8 else "float32",
          validation_digest=validation_digest,
      ),
  )
  return training.TrainingSpec(
      config=recorded.as_json(),
      train=dataclasses.replace(train, resident=config.compute.resident),
      validation=validation,
      release=config.release,
      learner=learner,
      optimizer=optimizer,
      steps=config.steps,
      privacy_unit=config.privacy_unit,
      delta=config.delta,
      seed=config.seed,
      private_seed=config.private_seed,
      compute=private.Compute(
          microbatch_size=(
              config.compute.microbatch_size
              or backends.choices().microbatch_size
          ),
          mesh=mesh if mesh.size > 1 else None,
          diagnostics=config.private_diagnostics,
          noise_terms=config.compute.noise_terms,
      ),
      evaluate_every=tasks.every,
      checkpoint_every=config.checkpoint_every,
      evaluator=evaluator or training.Evaluator(evaluated),
  )


def make_learners(
    config: RunConfig,
    image_shape: tuple[int, ...],
    validation: data.Dataset | None,
) -> tuple[learners.Learner, learners.Learner]:
  """Build the learner of the training tasks and that of the test tasks.

  The second is the first; or, for a learner of examples, fine-tuning with a
  new head for every task. A metric learner's network with batch normalisation
  has public examples.

  Args:
    config: of the run.
    image_shape: shape of an example.
    validation: public data of the run; None for generated images.
  """
  network = functools.partial(
      builder.build,
      config.model,
      input_shape=image_shape,
      augmentation=config.augmentation,
  )
  model = network(outputs=config.outputs)
  if model.moments is not None and config.learner.name in options.CLOSED_FORMS:
    model = model._replace(public=public.examples(validation, image_shape))
  learner = naming.make_learner(config.learner, model, way=config.way)
  if config.learner.name != options.SUPERVISED:
    return learner, learner
  return learner, naming.make_fine_tuning(
      network(outputs=config.way), config.fine_tuning
  )

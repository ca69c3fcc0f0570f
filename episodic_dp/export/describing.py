"""What model.json says of a run."""

import dataclasses
from typing import Any

import jax
import numpy as np

from episodic_dp import _version
from episodic_dp import data
from episodic_dp import learners
from episodic_dp import options as options_lib
from episodic_dp.config import RunConfig
from episodic_dp.data.own_data import load as own_data
from episodic_dp.export import description as description_lib
from episodic_dp.export import preprocessing as preprocessing_lib
from episodic_dp.models import parts

# Data sets whose loaders take single pixels of larger pictures.
_NEAREST = ("omniglot",)
_LOOKED_AT = 500  # Public images, for their background.


def describe(
    config: RunConfig,
    learner: learners.Learner,
    how: description_lib.Preprocessing,
    *,
    checkpoint: Any,
    steps: tuple[int, ...],
    weights: tuple[str, ...],
    start: str | None,
) -> description_lib.Description:
  """model.json of a run."""
  supervised = config.learner.name == options_lib.SUPERVISED
  outputs = learner.model.way
  if config.learner.headless and config.model.name != "mlp":
    outputs = None
  like = jax.eval_shape(learner.init, jax.random.key(0))
  episode = config.evaluation
  return description_lib.Description(
      format=description_lib.FORMAT,
      library=f"episodic_dp {_version.__version__}",
      network=dataclasses.replace(
          config.model,
          outputs=outputs,
          start=None,
          start_digest=None,
          trained=config.model.trained if start else "all",
      ),
      learner=config.learner,
      fine_tuning=config.fine_tuning if supervised else None,
      preprocessing=how,
      task=description_lib.Task(
          way=config.way, shot=episode.shot, query=episode.query
      ),
      checkpoint=checkpoint,
      steps=steps,
      weights=weights,
      start=start,
      arrays=tuple(
          description_lib.Array(name=name, shape=tuple(leaf.shape))
          for name, leaf in sorted(parts.by_name(like).items())
      ),
  )


def preprocessing(
    config: RunConfig, test: data.ArrayDataset, data_dir: str | None
) -> description_lib.Preprocessing:
  """How the run made its rows; `test` is public, and the training is not."""
  options = config.data.options

  def numbers(name: str) -> tuple[float, ...] | None:
    value = options.get(name)
    if value is None:
      return None
    several = value if isinstance(value, (tuple, list)) else (value,)
    return tuple(float(v) for v in several)

  whole = test.images.dtype == np.uint8
  image = whole or _are_images(config, test, data_dir)
  how = description_lib.Preprocessing(
      kind="image" if image else "features",
      shape=tuple(test.image_shape),
      dtype="uint8" if whole else "float32",
      divide_by=255.0 if whole else 1.0,
      resample="nearest" if config.data.name in _NEAREST else "bilinear",
      inverted=False,
      background=None,
      offset=numbers("offset"),
      scale=numbers("scale"),
      clip=numbers("clip"),
  )
  some = test.images[:: -(-len(test.images) // _LOOKED_AT)]
  return dataclasses.replace(
      how, background=preprocessing_lib.background(how, some)
  )


def _are_images(
    config: RunConfig, test: data.ArrayDataset, data_dir: str | None
) -> bool:
  """Whether own data of float32 are images of more than 8 bits, or features."""
  if config.data.name != "own_data" or len(test.image_shape) != 3:
    return False
  options = own_data.read_options(config.data.options)
  if (options.size, options.color, options.depth) != (None, None, None):
    return True
  listing = own_data.survey(data_dir, options).listing
  first = next(int(c.records[0]) for c in listing.classes if len(c.records))
  return listing.reader()(first).image

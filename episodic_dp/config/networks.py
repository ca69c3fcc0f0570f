"""The network that a config names: one of the library's, or code of one's own.

A run writes down what its network was: a digest of the weights that it began
with, and of own code (`own_code`) one of its file and of the parameters' names
and shapes.
"""

import dataclasses
import os
from typing import Any

from absl import logging
import jax

from episodic_dp import errors
from episodic_dp import models
from episodic_dp.config import learner_kinds
from episodic_dp.config import own_code
from episodic_dp.config import sections
from episodic_dp.config.run_config import RunConfig
from episodic_dp.models import weights as weights_lib
from episodic_dp.models.start import TRAINED

_Shape = tuple[int, ...]


def make_model(
    config: RunConfig,
    input_shape: _Shape,
    *,
    way: int | None = None,
    from_start: bool = True,
) -> models.Model:
  """The network of `config.model`.

  While it is trained it sees its images as `config.augmentation` says. It has
  `way` logits; for None what the config's learner needs: a logit for
  every class of a task, the features alone for a closed form, or for supervised
  learning `config.model.outputs`, the number of training classes. An mlp and
  own code give `config.model.outputs` numbers wherever that is set and `way` is
  not.

  Args:
    config: its sections `model`, `learner` and `augmentation` are read.
    input_shape: of one example.
    way: see above.
    from_start: whether it begins with the weights of `config.model.start`.

  Raises:
    RunError: no `outputs` where they are needed, own code that fails, or
      another network than the run's.
    ValueError: a network of such a shape, or with such a start, does not exist.
  """
  options = config.model
  outputs = _outputs(config) if way is None else way
  if options.is_own:
    model = own_code.make(options, outputs, input_shape)
    if way is None:
      _check_own(options, model)
  else:
    _check_axes(options.name, input_shape)
    model = models.by_name(
        options.name,
        outputs,
        input_shape,
        width=options.width,
        norm=options.norm,
        library=options.library,
        widths=options.widths,
    )
  if options.start is not None and from_start:
    model = models.start_from(
        model,
        _start(options),
        trained=options.trained,
        rank=options.rank,
        source=_source(options),
    )
  return models.augmented(model, make_augmentation(config))


def check(options: sections.Model) -> None:
  """Refuses own code and weights that cannot be read, before there are data.

  Raises:
    RunError, ValueError: one sentence.
  """
  if options.is_own:
    own_code.check(options)
  if options.trained not in TRAINED or options.rank < 1:
    raise errors.RunError(
        f"config.model.trained={options.trained} with rank={options.rank}: give"
        f" one of {', '.join(TRAINED)}, and a rank of at least 1"
    )
  if options.start is not None:
    _start(options)


def make_augmentation(config: RunConfig) -> models.Augmentation:
  """What happens to training images.

  Raises:
    ValueError: one sentence.
  """
  return models.Augmentation(**dataclasses.asdict(config.augmentation))


def recorded(config: RunConfig, model: models.Model) -> dict[str, Any]:
  """`config.as_json()` with what identifies its network.

  Args:
    config: of the run.
    model: its network.
  """
  result, options = config.as_json(), config.model
  found: dict[str, Any] = {}
  if options.start is not None:
    found["start"] = os.path.abspath(options.start)
    found["start_digest"] = weights_lib.digest(_start(options))
  if options.is_own:
    found["source_digest"] = own_code.source_digest(options.name)
    found["shapes_digest"] = _shapes_digest(model)
  return result | {"model": dict(result["model"]) | found}


def _outputs(config: RunConfig) -> int | None:
  """The outputs that the config's learner needs."""
  options, learner = config.model, config.learner.name
  flexible = options.is_own or options.name == "mlp"
  outputs = None
  if flexible or learner == learner_kinds.SUPERVISED:
    outputs = options.outputs
  if learner == learner_kinds.SUPERVISED and outputs is None:
    raise errors.RunError(
        "config.model.outputs is missing: set it to the number of training"
        " classes, which learner.name='supervised' tells apart"
    )
  headless = learner in learner_kinds.HEADLESS and options.name != "mlp"
  return config.way if outputs is None and not headless else outputs


# How many axes an example has; an mlp takes any.
_AXES = {"conv4": 3, "conv6": 3, "resnet12": 3, "conv1d": 2}
_TAKES = {2: "series (time, channels)", 3: "images (height, width, channels)"}


def _check_axes(name: str, shape: _Shape) -> None:
  """RunError where examples are not what a network of the library takes."""
  axes = _AXES.get(name, len(shape))
  if axes != len(shape):
    other = {2: "conv1d", 3: "conv4"}.get(len(shape), "mlp")
    raise errors.RunError(
        f"config.model.name={name!r} takes {_TAKES[axes]}, and an example of"
        f" the data has shape {shape}: use another network with"
        f" --config.model.name={other}"
    )


# Weights to begin with --------------------------------------------------------


def _source(options: sections.Model) -> str:
  return f"config.model.start={options.start}"


def _start(options: sections.Model) -> dict[str, Any]:
  """The weights; RunError where they are not those that are asked for."""
  assert options.start is not None
  weights = models.read_weights(options.start)
  found, wanted = weights_lib.digest(weights), options.start_digest
  if wanted is not None and found != wanted:
    raise errors.RunError(
        f"{_source(options)} holds other weights (start_digest {found[:12]})"
        f" than those of the run ({wanted[:12]}): put back the file that it was"
        " started with"
    )
  return weights


# What a run recorded of own code ----------------------------------------------


def _check_own(options: sections.Model, model: models.Model) -> None:
  """Compares own code with what a run recorded of it."""
  wanted = options.shapes_digest
  if wanted is not None and _shapes_digest(model) != wanted:
    raise errors.RunError(
        f"config.model.name={options.name!r} has parameters of other names or"
        " shapes than the run's: undo what was changed of it, or choose another"
        " --workdir"
    )
  found = own_code.source_digest(options.name)
  if options.source_digest not in (None, found):
    logging.warning(
        "the file of config.model.name=%r is not as it was when the run last"
        " went on: if the network computes something else, what is measured is"
        " not what was trained",
        options.name,
    )


def _shapes_digest(model: models.Model) -> str:
  def parameters(key: jax.Array) -> Any:
    params = model.init(key)
    return params if model.whole is None else model.whole(params)

  return weights_lib.shapes_digest(
      jax.eval_shape(parameters, jax.random.key(0))
  )

"""The network that a config names: one of the library's, or code of one's own.

`config.model.name=my_module:make_model` imports `my_module` from the current
folder or from PYTHONPATH and calls

  make_model(outputs, input_shape, **config.model.options) -> models.Model

with the number of logits (None where a metric learner wants features) and the
shape of one example. A run writes down what its network was: a digest of the
module's file, of the parameters' names and shapes, and of the weights that it
began with.
"""

from collections.abc import Callable
import hashlib
import importlib
import importlib.util
import inspect
import os
import pathlib
import sys
import traceback
from typing import Any

from absl import logging
import jax

from episodic_dp import models
from episodic_dp.config import learner_kinds
from episodic_dp.config import sections
from episodic_dp.config.run_config import RunConfig
from episodic_dp.models import weights as weights_lib
from episodic_dp.models.start import TRAINED
from episodic_dp.training import errors

_Shape = tuple[int, ...]


def make_model(
    config: RunConfig,
    input_shape: _Shape,
    *,
    way: int | None = None,
    from_start: bool = True,
) -> models.Model:
  """The network of `config.model`.

  It has `way` logits; for None what the config's learner needs: a logit for
  every class of a task, the features alone for a closed form, or for supervised
  learning `config.model.outputs`, the number of training classes. An mlp and
  own code give `config.model.outputs` numbers wherever that is set and `way` is
  not.

  Args:
    config: its sections `model` and `learner` are read.
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
    model = _of_own(options, outputs, input_shape)
    if way is None:
      _check_own(options, model)
  else:
    _check_axes(options.name, input_shape)
    model = _MAKERS[options.name](options, outputs, input_shape)
  if options.start is None or not from_start:
    return model
  return models.start_from(
      model,
      _start(options),
      trained=options.trained,
      rank=options.rank,
      source=_source(options),
  )


def check(options: sections.Model) -> None:
  """Refuses own code and weights that cannot be read, before there are data.

  Raises:
    RunError, ValueError: one sentence.
  """
  if options.is_own:
    _check_signature(options, _function(options.name))
  if options.trained not in TRAINED or options.rank < 1:
    raise errors.RunError(
        f"config.model.trained={options.trained} with rank={options.rank}: give"
        f" one of {', '.join(TRAINED)}, and a rank of at least 1"
    )
  if options.start is not None:
    _start(options)


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
    found["source_digest"] = _source_digest(options.name)
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


# The networks of the library --------------------------------------------------


def _conv4(
    options: sections.Model, outputs: int | None, shape: _Shape
) -> models.Model:
  return models.conv4(
      outputs, options.width, options.norm, shape, options.library
  )


def _mlp(
    options: sections.Model, outputs: int | None, shape: _Shape
) -> models.Model:
  assert outputs is not None
  return models.mlp(outputs, options.widths, shape)


def _convolutional(make: Callable[..., models.Model]) -> Any:
  return lambda options, outputs, shape: make(
      outputs, options.width, options.norm, shape
  )


_MAKERS: dict[str, Callable[..., models.Model]] = {
    "conv4": _conv4,
    "conv6": _convolutional(models.conv6),
    "resnet12": _convolutional(models.resnet12),
    "conv1d": _convolutional(models.conv1d),
    "mlp": _mlp,
}


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


# Code of one's own ------------------------------------------------------------


def _of_own(
    options: sections.Model, outputs: int | None, input_shape: _Shape
) -> models.Model:
  """What `make_model` of one's own returns, if it is a Model."""
  make = _function(options.name)
  _check_signature(options, make)
  try:
    model = make(outputs, input_shape, **options.options)
  except Exception as e:  # Code of the user's own may raise anything.
    raise errors.RunError(
        f"config.model.name={options.name!r} failed for outputs={outputs} and"
        f" input_shape={input_shape} ({_short(e, options.name)}): mend it"
    ) from e
  if not isinstance(model, models.Model):
    raise errors.RunError(
        f"config.model.name={options.name!r} returned {type(model).__name__}:"
        " let it return a models.Model, such as models.from_flax(module,"
        " input_shape)"
    )
  return model


def _function(name: str) -> Callable[..., Any]:
  """The function that MODULE:FUNCTION names.

  Raises:
    RunError: the module cannot be imported or lacks it; one sentence.
  """
  module_name, _, attribute = name.partition(":")
  here = os.getcwd()
  if here not in sys.path:
    sys.path.append(here)  # Last: a folder named as a library hides none.
  importlib.invalidate_caches()
  try:
    module = importlib.import_module(module_name)
  except Exception as e:  # Its code may raise anything.
    if isinstance(e, ModuleNotFoundError) and module_name.startswith(
        e.name or " "
    ):
      raise errors.RunError(
          f"config.model.name={name!r} names the module {module_name!r}, which"
          f" is neither in the current folder ({here}) nor on PYTHONPATH: start"
          " in its folder, or name it there"
      ) from e
    raise errors.RunError(
        f"config.model.name={name!r}: the module {module_name!r} cannot be"
        f" imported ({_short(e, name)}): mend it, or write"
        " config.model.name=my_module:make_model"
    ) from e
  function = getattr(module, attribute, None)
  if not callable(function):
    there = sorted(
        key for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module_name
    )  # fmt: skip
    raise errors.RunError(
        f"config.model.name={name!r}: {module_name} has no function"
        f" {attribute!r}; name one of those it has:"
        f" {', '.join(there) or 'none, so write make_model'}"
    )
  return function


def _check_signature(
    options: sections.Model, make: Callable[..., Any]
) -> None:
  try:
    inspect.signature(make).bind(None, (), **options.options)
  except (TypeError, ValueError) as e:
    given = "".join(f", {key}" for key in options.options)
    raise errors.RunError(
        f"config.model.name={options.name!r} does not take (outputs,"
        f" input_shape{given}) ({e}): define it as make_model(outputs,"
        f" input_shape{given})"
    ) from e


def _check_own(options: sections.Model, model: models.Model) -> None:
  """Compares own code with what a run recorded of it."""
  wanted = options.shapes_digest
  if wanted is not None and _shapes_digest(model) != wanted:
    raise errors.RunError(
        f"config.model.name={options.name!r} has parameters of other names or"
        " shapes than the run's: undo what was changed of it, or choose another"
        " --workdir"
    )
  if options.source_digest not in (None, _source_digest(options.name)):
    logging.warning(
        "the file of config.model.name=%r is not as it was when the run began:"
        " if the network computes something else, what is measured is not what"
        " was trained",
        options.name,
    )


def _shapes_digest(model: models.Model) -> str:
  def parameters(key: jax.Array) -> Any:
    params = model.init(key)
    return params if model.whole is None else model.whole(params)

  return weights_lib.shapes_digest(
      jax.eval_shape(parameters, jax.random.key(0))
  )


def _source_digest(name: str) -> str:
  """SHA-256 of the module's file; of nothing where it has none."""
  path = inspect.getsourcefile(_function(name)) or ""
  try:
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
  except OSError:
    return hashlib.sha256().hexdigest()


def _short(error: BaseException, name: str) -> str:
  """The error's first line, and where in own code it was raised."""
  text = (str(error).strip().splitlines() or [""])[0][:100]
  result = f"{type(error).__name__}: {text}" if text else type(error).__name__
  if isinstance(error, SyntaxError):
    return result  # Says where itself.
  stem = name.partition(":")[0].rpartition(".")[2]
  for frame in reversed(traceback.extract_tb(error.__traceback__)):
    if pathlib.Path(frame.filename).stem == stem:
      return f"{result}, {stem}.py line {frame.lineno}"
  return result

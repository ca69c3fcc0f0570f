"""Networks that a config names: those of the library, or own code.

`config.model.name=my_module:make_model` imports `my_module` from the current
folder or from PYTHONPATH and calls

  make_model(outputs, input_shape, **config.model.options) -> models.Model

with the number of logits (None where a metric learner needs features) and the
shape of one example.

A run records what its network was: a digest of the weights that it started
from, and for own code one of its file and of the parameters' names and shapes.
"""

from collections.abc import Callable
import hashlib
import importlib
import inspect
import os
import pathlib
import sys
import traceback
from typing import Any

from absl import logging
import jax

from episodic_dp import errors
from episodic_dp import models
from episodic_dp import options
from episodic_dp.config.run_config import RunConfig
from episodic_dp.models import model as model_lib
from episodic_dp.models import networks
from episodic_dp.models import parts

_Shape = tuple[int, ...]
_LONGEST = 400  # Characters of another program's error.


def make_model(
    config: RunConfig,
    input_shape: _Shape,
    *,
    way: int | None = None,
) -> models.Model:
  """Build the network of `config.model`, augmented while it is trained.

  Args:
    config: its sections `model`, `learner` and `augmentation` are read.
    input_shape: shape of one example.
    way: number of logits. None for the number that the learner needs: the
      classes of a task, features for a closed form, or `config.model.outputs`
      for supervised learning, and wherever it is set for an mlp or own code.

  Raises:
    RunError: own code that fails, or another network than the run's.
    ValueError: a network of such a shape, or with such a start, does not exist.
  """
  network = config.model
  outputs = config.outputs if way is None else way
  if network.is_own:
    model = _make_own(network, outputs, input_shape)
    if way is None:
      _check_recorded(network, model)
  else:
    model = networks.by_name(network, outputs, input_shape)
  if network.start is not None:
    model = models.start_from(
        model,
        _start(network),
        trained=network.trained,
        rank=network.rank,
        source=_source(network),
    )
  return model_lib.augmented(model, config.augmentation)


def check(network: options.Network) -> None:
  """Refuse own code and weights that cannot be read, before data are loaded.

  Raises:
    RunError, ValueError: one sentence.
  """
  if network.is_own:
    own_function(network)
  if network.start is not None:
    _start(network)


def recorded(config: RunConfig, model: models.Model) -> dict[str, Any]:
  """Return `config.as_json()` with the digests of its network."""
  result, network = config.as_json(), config.model
  found: dict[str, Any] = {}
  if network.start is not None:
    if network.start not in parts.SHIPPED:
      found["start"] = os.path.abspath(network.start)
    found["start_digest"] = parts.digest(_start(network))
  if network.is_own:
    found["source_digest"] = _source_digest(network.name)
    found["shapes_digest"] = _shapes_digest(model)
  return result | {"model": result["model"] | found}


def _source(network: options.Network) -> str:
  return f"config.model.start={network.start}"


def _start(network: options.Network) -> dict[str, Any]:
  """Return the weights; RunError where their digest is another."""
  assert network.start is not None
  weights = models.read_weights(network.start)
  found, wanted = parts.digest(weights), network.start_digest
  if wanted is not None and found != wanted:
    raise errors.RunError(
        f"{_source(network)} holds other weights (start_digest {found[:12]})"
        f" than those of the run ({wanted[:12]}): put back the file that it was"
        " started with"
    )
  return weights


# Own code ---------------------------------------------------------------------


def _make_own(
    network: options.Network, outputs: int | None, input_shape: _Shape
) -> models.Model:
  """Call the function; RunError where it raises or returns no Model."""
  function = own_function(network)
  try:
    model = function(outputs, input_shape, **network.options)
    if isinstance(model, models.Model) and model.input_shape is None:
      model = model_lib.checked(model, input_shape)  # Two plain functions.
  except Exception as e:  # Code of the user's own may raise anything.
    raise errors.RunError(
        f"config.model.name={network.name!r} failed for outputs={outputs} and"
        f" input_shape={input_shape} ({_short(e)}): mend it"
    ) from e
  if not isinstance(model, models.Model):
    raise errors.RunError(
        f"config.model.name={network.name!r} returned {type(model).__name__}:"
        " return a models.Model, such as models.from_flax(module, input_shape)"
    )
  return model


def own_function(network: options.Network) -> Callable[..., Any]:
  """Import MODULE:FUNCTION and check its arguments.

  Raises:
    RunError: there is none, or its arguments are others.
  """
  name = network.name
  module_name, _, attribute = name.partition(":")
  here = os.getcwd()
  if here not in sys.path:
    sys.path.append(here)  # Last: a folder named as a library hides none.
  importlib.invalidate_caches()
  given = "".join(f", {key}" for key in network.options)
  try:
    function = getattr(importlib.import_module(module_name), attribute)
    inspect.signature(function).bind(None, (), **network.options)
  except Exception as e:  # Its code may raise anything.
    raise errors.RunError(
        f"config.model.name={name!r} cannot be used ({_short(e)}): give"
        " MODULE:FUNCTION of a module in the current folder or on PYTHONPATH,"
        f" defined as make_model(outputs, input_shape{given})"
    ) from e
  return function


def _check_recorded(network: options.Network, model: models.Model) -> None:
  """Compare own code with the digests that a run recorded."""
  wanted = network.shapes_digest
  if wanted is not None and _shapes_digest(model) != wanted:
    raise errors.RunError(
        f"config.model.name={network.name!r} has parameters of other names or"
        " shapes than the run's: undo the change, or choose another --workdir"
    )
  if network.source_digest not in (None, _source_digest(network.name)):
    logging.warning(
        "the file of config.model.name=%r has changed since the run last"
        " resumed: if the network computes something else, the measured network"
        " is not the trained one",
        network.name,
    )


def _source_digest(name: str) -> str:
  """Return the SHA-256 of the module's file; of nothing where it has none."""
  module = importlib.import_module(name.partition(":")[0])
  try:
    content = pathlib.Path(module.__file__ or "").read_bytes()
  except OSError:
    content = b""
  return hashlib.sha256(content).hexdigest()


def _shapes_digest(model: models.Model) -> str:
  def parameters(key: jax.Array) -> Any:
    params = model.init(key)
    return params if model.whole is None else model.whole(params)

  return parts.shapes_digest(
      jax.eval_shape(parameters, jax.random.key(0))
  )


def _short(error: BaseException) -> str:
  """Return the error's first line, and the line of code that raised it."""
  text = (str(error).strip().splitlines() or [""])[0][:_LONGEST]
  frame = traceback.extract_tb(error.__traceback__)[-1]
  file = pathlib.Path(frame.filename).name
  return f"{type(error).__name__}: {text}, {file} line {frame.lineno}"

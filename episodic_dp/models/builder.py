"""Build the network that the options describe: the library's, or a user's.

`model.name=my_module:make_model` imports `my_module` from the current folder or
from PYTHONPATH and calls

  make_model(outputs, input_shape, **model.options) -> models.Model

`outputs` is the number of logits (None if a metric learner needs features), and
`input_shape` the shape of one example.
"""

from collections.abc import Callable
import importlib
import os
import pathlib
import sys
import traceback
from typing import Any

from episodic_dp import _validate
from episodic_dp import options
from episodic_dp.errors import RunError
from episodic_dp.models import model as model_lib
from episodic_dp.models import networks
from episodic_dp.models import parts

_LONGEST = 400  # Characters of an error in a user's code.


def build(
    network: options.Network,
    outputs: int | None,
    input_shape: tuple[int, ...],
    augmentation: options.Augmentation | None = None,
) -> model_lib.Model:
  """Build a network with its public start, augmented in training.

  Args:
    network: its options.
    outputs: number of logits; None for features.
    input_shape: shape of one example.
    augmentation: random changes of training images; None for no change.

  Raises:
    RunError: a user's code fails, or the start holds other weights than the
      run's.
    PlanError: the network cannot have this shape.
    DataError: the start does not fit it.
  """
  make = _own if network.is_own else networks.by_name
  model = make(network, outputs, input_shape)
  if network.start in parts.SHIPPED and network.name != "conv4":
    raise _validate.refusal(
        "start", network.start,
        f"none for {network.name} (in a command with own data,"
        f" --config=own_data:network={network.name})",
    )
  if network.start is not None:
    source = f"start={network.start}"
    model = parts.start_from(
        model,
        parts.read_weights(network.start),
        trained=network.trained,
        source=source,
    )
    if network.start_digest not in (None, model.start):
      remedy = "restore the file that the run was started with"
      if network.start in parts.SHIPPED:
        remedy = "use the version of episodic_dp that began the run"
      raise RunError(
          f"{source} holds other weights than those of the run: {remedy}"
      )
  if augmentation is None:
    return model
  return model_lib.augmented(model, augmentation)


def _own(
    network: options.Network, outputs: int | None, input_shape: tuple[int, ...]
) -> model_lib.Model:
  """Call MODULE:FUNCTION; RunError if it fails or returns no Model."""
  try:
    function: Any = imported(network)
    return call(function, network, outputs, input_shape)
  except Exception as e:  # A user's code may raise anything.
    given = ", ".join(("outputs", "input_shape", *network.options))
    raise RunError(
        f"network {network.name!r} failed for outputs={outputs} and"
        f" input_shape={input_shape} ({_short(e)}): give MODULE:FUNCTION of a"
        " module in the current folder or on PYTHONPATH, defined as"
        f" make_model({given})"
    ) from e


def imported(
    network: options.Network,
) -> Callable[..., model_lib.Model] | None:
  """Import the function of own code; None for a network of the library."""
  module, _, attribute = network.name.partition(":")
  here = os.getcwd()
  if here not in sys.path:
    sys.path.append(here)  # Last, so that no folder hides a library.
  importlib.invalidate_caches()
  if not attribute:
    return None
  return getattr(importlib.import_module(module), attribute)


def call(
    function: Callable[..., model_lib.Model],
    network: options.Network,
    outputs: int | None,
    input_shape: tuple[int, ...],
) -> model_lib.Model:
  """Call a function of own code with a network's options.

  Raises:
    TypeError: it returns no Model.
    RunError: see `model.checked`; an error of its own functions is raised.
  """
  model = function(outputs, input_shape, **network.options)
  if not isinstance(model, model_lib.Model):
    raise TypeError(f"it returned {type(model).__name__}, not models.Model")
  # Also a checked one: its functions may have been replaced since.
  return model_lib.checked(model, input_shape)


def _short(error: BaseException) -> str:
  """Return the error's first line, and the line of code that raised it."""
  text = (str(error).strip().splitlines() or [""])[0][:_LONGEST]
  frame = traceback.extract_tb(error.__traceback__)[-1]
  file = pathlib.Path(frame.filename).name
  return f"{type(error).__name__}: {text}, {file} line {frame.lineno}"

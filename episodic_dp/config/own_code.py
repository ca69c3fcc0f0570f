"""Code of the user's own that a config names: MODULE:FUNCTION.

`config.model.name=my_module:make_model` imports `my_module` from the current
folder or from PYTHONPATH and calls

  make_model(outputs, input_shape, **config.model.options) -> models.Model

with the number of logits (None where a metric learner wants features) and the
shape of one example. Whatever goes wrong in it ends in one sentence.
"""

from collections.abc import Callable
import hashlib
import importlib
import inspect
import os
import pathlib
import sys
import textwrap
import traceback
from typing import Any

from episodic_dp import errors
from episodic_dp import models
from episodic_dp.config import sections
from episodic_dp.models import model as model_lib

_LONGEST = 400  # Characters of what another's error says.


def make(
    options: sections.Model, outputs: int | None, input_shape: tuple[int, ...]
) -> models.Model:
  """What the function returns.

  Raises:
    RunError: it cannot be called, raises something, or returns no Model.
  """
  function = check(options)
  try:
    model = function(outputs, input_shape, **options.options)
    if isinstance(model, models.Model) and model.input_shape is None:
      model = model_lib.checked(model, input_shape)  # Two plain functions.
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


def check(options: sections.Model) -> Callable[..., Any]:
  """The function, which takes what it will be called with.

  Raises:
    RunError: there is none, or its arguments are others; one sentence.
  """
  function = _function(options.name)
  try:
    inspect.signature(function).bind(None, (), **options.options)
  except (TypeError, ValueError) as e:
    given = "".join(f", {key}" for key in options.options)
    raise errors.RunError(
        f"config.model.name={options.name!r} does not take (outputs,"
        f" input_shape{given}) ({e}): define it as make_model(outputs,"
        f" input_shape{given})"
    ) from e
  return function


def _function(name: str) -> Callable[..., Any]:
  """The function that MODULE:FUNCTION names.

  Raises:
    RunError: the module cannot be imported or lacks it; one sentence.
  """
  module_name, _, attribute = name.partition(":")
  if module_name.endswith(".py"):
    raise errors.RunError(
        f"config.model.name={name!r} names a file, and a module is wanted:"
        f" write config.model.name={module_name[:-3]}:{attribute}"
    )
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


def source_digest(name: str) -> str:
  """SHA-256 of the module's file; of nothing where it has none."""
  module = importlib.import_module(name.partition(":")[0])
  try:
    path = pathlib.Path(module.__file__ or "")
    return hashlib.sha256(path.read_bytes()).hexdigest()
  except OSError:
    return hashlib.sha256().hexdigest()


def _short(error: BaseException, name: str) -> str:
  """The error's first line, and where in own code it was raised."""
  text = (str(error).strip().splitlines() or [""])[0]
  text = textwrap.shorten(text, _LONGEST, placeholder=" ...")
  result = f"{type(error).__name__}: {text}" if text else type(error).__name__
  if isinstance(error, SyntaxError):
    return result  # Says where itself.
  stem = name.partition(":")[0].rpartition(".")[2]
  for frame in reversed(traceback.extract_tb(error.__traceback__)):
    if pathlib.Path(frame.filename).stem == stem:
      return f"{result}, {stem}.py line {frame.lineno}"
  return result

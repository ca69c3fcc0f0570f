"""From a description to the learner, and from files to its parameters."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from episodic_dp import errors
from episodic_dp import learners
from episodic_dp import models
from episodic_dp.export.description import Description
from episodic_dp.models import parts

Weights = Mapping[str, np.ndarray]

# Their heads have a logit for each class of a training task.
_FIXED_WAY = ("maml", "anil", "meta_sgd", "reptile")


def read_arrays(content: bytes, name: str) -> dict[str, np.ndarray]:
  """The arrays of a safetensors file; nothing in it is executed.

  Raises:
    RunError: it is damaged, or an array is not finite; one sentence.
  """
  try:
    found = safetensors.numpy.load(content)
  except Exception as e:  # It raises many types for damaged files.
    reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
    raise errors.RunError(
        f"{name} is no safetensors file ({reason[:80]}): export the run again"
    ) from e
  for key, array in found.items():
    if array.dtype != np.float32 or not np.isfinite(array).all():
      raise errors.RunError(
          f"{name} has {key!r} as {array.dtype}, or NaN or infinity in it: give"
          " finite weights of float32"
      )
  return found


def trained(
    found: Description, start: Weights | None
) -> learners.BaseLearner:
  """The learner as it was trained, whose `init` says what it learned."""
  return learners.by_name(
      found.learner,
      _network(found, found.network.outputs, start),
      way=found.task.way,
  )


def for_way(
    found: Description, start: Weights | None, way: int
) -> learners.BaseLearner:
  """The learner for tasks of so many classes.

  Args:
    found: of the model.
    start: the weights that stayed as they were, or None.
    way: classes of the support set.

  Raises:
    RunError: it has logits for another number of classes.
  """
  name = found.learner.name
  if name in _FIXED_WAY and way != found.network.outputs:
    raise errors.RunError(
        f"the support has {way} classes and this model ({name}) tells exactly"
        f" {found.network.outputs} apart: give {found.network.outputs} classes,"
        " or take a model of protonet or ridge, which tell any number"
    )
  if found.fine_tuning is not None:
    return learners.make_fine_tuning(
        _network(found, way, start), found.fine_tuning
    )
  return learners.by_name(
      found.learner,
      _network(found, found.network.outputs, start),
      way=way,
  )


def parameters(like: Any, arrays: Weights, name: str) -> Any:
  """The parameters of a learner from arrays by name.

  Args:
    like: its parameters, or their shapes.
    arrays: of a file.
    name: of the file, for messages.

  Raises:
    RunError: an array is missing, unknown or of another shape.
  """
  shapes = {k: tuple(v.shape) for k, v in parts.by_name(like).items()}
  held = {k: tuple(v.shape) for k, v in arrays.items()}
  if held != shapes:
    key = min(k for k in {*shapes, *held} if shapes.get(k) != held.get(k))
    raise errors.RunError(
        f"{name} has {key!r} as {held.get(key)} and the network of model.json"
        f" as {shapes.get(key)}: export the run again"
    )
  return parts.of_names(like, {k: jnp.asarray(v) for k, v in arrays.items()})


def shapes_of(learner: learners.Learner) -> Any:
  """The shapes of a learner's parameters; nothing is computed."""
  return jax.eval_shape(learner.init, jax.random.key(0))


def _network(
    found: Description, outputs: int | None, start: Weights | None
) -> models.Model:
  network = found.network
  model = models.by_name(network, outputs, found.preprocessing.shape)
  if start is None:
    return model
  return models.start_from(
      model,
      start,
      trained=network.trained,
      rank=network.rank,
      source="the start",
  )

"""Consumers' side: load a model, adapt it to a few labelled examples, predict.

Nothing that trains is imported here, and nothing in a folder is executed.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
import dataclasses
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import errors
from episodic_dp.accounting import statement_files
from episodic_dp.export import building
from episodic_dp.export import description as description_lib
from episodic_dp.export import folder as folder_lib
from episodic_dp.export import preprocessing
from episodic_dp.sampling import episodes

_CHUNK = 256  # Examples at once, where each is judged alone.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
  """What a model says of some examples.

  Attributes:
    classes: the labels of the support set, sorted.
    probabilities: float32[n, classes], the softmax of the logits; of an
      ensemble the mean of its members'.
  """

  classes: tuple[Hashable, ...]
  probabilities: np.ndarray

  @property
  def labels(self) -> list[Hashable]:
    """The most probable class of every example."""
    return [self.classes[i] for i in self.probabilities.argmax(-1)]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Adapted:
  """A model that has seen a support set.

  Attributes:
    classes: its labels, sorted.
    how: what is done to examples first.
    together: whether the examples of one call are judged together.
    members: for each checkpoint the function from scaled rows to probabilities.
  """

  classes: tuple[Hashable, ...]
  how: description_lib.Preprocessing
  together: bool
  members: tuple[Callable[[np.ndarray], jax.Array], ...]

  def predict(self, images: Any) -> Predictions:
    """Classifies examples.

    Where the network normalises by the batch (`Predictor.transductive`) the
    examples of one call are judged together.

    Args:
      images: uint8 [n, H, W] or [n, H, W, 1 or 3] or a list of such images of
        any size, or float32 from 0 to 1; or features of the model's shape.

    Raises:
      RunError: there are none, one cannot be used, or what comes out is not
        finite; one sentence.
    """
    return self.predict_rows(
        preprocessing.of_arrays(self.how, images, "the images to classify")
    )

  def predict_rows(self, rows: np.ndarray) -> Predictions:
    """Classifies rows [n, ...], as `preprocessing.row` makes them."""
    values = preprocessing.scaled(self.how, rows)
    count = len(values)
    size = count if self.together else min(count, _CHUNK)
    found = []
    for first in range(0, count, size):
      part = values[first : first + size]
      # One shape, so that it is compiled once.
      filled = np.concatenate([part, np.repeat(part[-1:], size - len(part), 0)])
      each = [np.asarray(member(filled)) for member in self.members]
      found.append(np.mean(each, axis=0)[: len(part)])
    probabilities = np.concatenate(found)
    if not np.isfinite(probabilities).all():
      raise errors.RunError(
          "the model left the numbers of float32 while it adapted: give more"
          " support images, or others"
      )
    return Predictions(classes=self.classes, probabilities=probabilities)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Predictor:
  """An exported model.

  Attributes:
    description: what model.json says.
    statement: the privacy statement, which was computed again.
    start: the weights that training left as they were, or None.
    members: the parameters of each checkpoint.
    signed_by: the fingerprint of the key that signed, where one was asked for.
  """

  description: description_lib.Description
  statement: Mapping[str, Any]
  start: building.Weights | None
  members: tuple[Any, ...]
  signed_by: str | None = None

  @classmethod
  def load(
      cls,
      path: str | os.PathLike[str],
      *,
      public_key: str | os.PathLike[str] | None = None,
  ) -> "Predictor":
    """Reads a folder that `episodic-dp export` wrote.

    Every file is compared with its digest, and the privacy statement is
    computed again.

    Args:
      path: of the folder.
      public_key: the file of the key that should have signed it, from a source
        that is trusted; None does not ask who did.

    Raises:
      RunError: a file is missing, changed or unknown; one sentence.
      PlanError: the privacy statement does not hold.
      SignatureError: it was not signed by that key.
    """
    root = pathlib.Path(path)
    contents = folder_lib.read(root)
    signed_by = None
    if public_key is not None:
      signed_by = folder_lib.signer(root, contents, public_key)
    place = root / folder_lib.STATEMENT
    verification = statement_files.compute(
        place, contents[folder_lib.STATEMENT]
    )
    statement_files.check(place, verification)
    found = description_lib.from_json(
        contents[folder_lib.MODEL], str(root / folder_lib.MODEL)
    )
    for name in found.files:
      if name not in contents:
        raise errors.RunError(
            f"{root} lacks {name}, which {folder_lib.MODEL} names: get the"
            " folder again from whoever published it"
        )
    arrays = {
        name: building.read_arrays(contents[name], str(root / name))
        for name in found.files
    }
    start = arrays[found.start] if found.start else None
    try:
      like = building.shapes_of(building.trained(found, start))
    except ValueError as e:
      raise errors.RunError(
          f"{root / folder_lib.MODEL} describes no model: {e}"
      ) from e
    members = tuple(
        building.parameters(like, arrays[name], str(root / name))
        for name in found.weights
    )
    return cls(
        description=found,
        statement=verification.stated,
        start=start,
        members=members,
        signed_by=signed_by,
    )

  @property
  def transductive(self) -> bool:
    """Whether an example's prediction depends on those given with it."""
    return building.trained(self.description, self.start).transductive

  @property
  def guarantees(self) -> Mapping[str, Mapping[str, Any]]:
    """Level -> what the privacy statement says of it, "epsilon" and so on."""
    return self.statement["guarantees"]

  def check_way(self, way: int) -> None:
    """RunError unless the model can tell so many classes apart."""
    building.for_way(self.description, self.start, way)

  def adapt(self, images: Any, labels: Sequence[Hashable]) -> Adapted:
    """Adapts to a support set; the model itself stays as it is.

    Args:
      images: as for `Adapted.predict`.
      labels: the class of each, names or whole numbers.

    Raises:
      RunError: an image cannot be used, or the model cannot tell so many
        classes apart; one sentence.
    """
    if hasattr(labels, "tolist"):
      labels = labels.tolist()
    rows = preprocessing.of_arrays(
        self.description.preprocessing, images, "the support images"
    )
    return self.adapt_rows(rows, labels)

  def adapt_rows(
      self, rows: np.ndarray, labels: Sequence[Hashable]
  ) -> Adapted:
    """Adapts to rows [n, ...], as `preprocessing.row` makes them."""
    if len(rows) != len(labels):
      raise errors.RunError(
          f"there are {len(rows)} support images and {len(labels)} labels: give"
          " one label for each image"
      )
    kinds = {type(label) for label in labels}
    if kinds - {str} and kinds - {int}:
      raise errors.RunError(
          f"labels of type {', '.join(sorted(k.__name__ for k in kinds))}: give"
          " names, or whole numbers, for all"
      )
    classes: tuple[Any, ...] = tuple(sorted(set(labels)))  # type: ignore
    if len(classes) < 2:
      raise errors.RunError(
          f"all support images are of the class {classes[0]!r}: give images of"
          " at least two classes"
      )
    learner = building.for_way(self.description, self.start, len(classes))
    numbers = {name: number for number, name in enumerate(classes)}
    support = episodes.Examples(
        jnp.asarray(preprocessing.scaled(self.description.preprocessing, rows)),
        jnp.asarray([numbers[label] for label in labels], jnp.int32),
    )
    adapt = jax.jit(learner.adapt)

    @jax.jit
    def probabilities(adapted: Any, images: jax.Array) -> jax.Array:
      return jax.nn.softmax(learner.logits(adapted, images), axis=-1)

    def member(params: Any) -> Callable[[np.ndarray], jax.Array]:
      adapted = adapt(params, support)
      return lambda images: probabilities(adapted, images)

    return Adapted(
        classes=classes,
        how=self.description.preprocessing,
        together=learner.transductive,
        members=tuple(member(params) for params in self.members),
    )

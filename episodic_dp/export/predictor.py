"""Load an exported model, adapt it to a few labelled examples, and predict.

Nothing that trains is imported here, and no file in a folder is executed: the
caller gives the function of a network of own code.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
import dataclasses
import math
import os
import pathlib
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from episodic_dp import backends
from episodic_dp import errors
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import options
from episodic_dp.accounting import statement as statement_lib
from episodic_dp.export import folder as folder_lib
from episodic_dp.export import preprocessing
from episodic_dp.learners import learner as learner_lib
from episodic_dp.learners import naming
from episodic_dp.models import builder
from episodic_dp.models import model as models_lib
from episodic_dp.models import networks
from episodic_dp.models import parts
from episodic_dp.output import files
from episodic_dp.plan import labels as labels_lib
from episodic_dp.sampling import episodes

Weights = Mapping[str, np.ndarray]

# Examples of a block, its largest size in bytes, and examples computed at once.
_BLOCK, _BYTES, _AT_ONCE = 256, 2**23, 8
_GROWTH = 4  # From one size of a filled support set to the next.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
  """Class probabilities of some examples.

  Attributes:
    classes: the labels of the support set, sorted.
    probabilities: float32[n, classes], the softmax of the logits, averaged over
      the members of an ensemble.
  """

  classes: tuple[Hashable, ...]
  probabilities: np.ndarray

  @property
  def labels(self) -> list[Hashable]:
    """Return the most probable class of every example."""
    return [self.classes[i] for i in self.probabilities.argmax(-1)]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Adapted:
  """A model adapted to a support set.

  Attributes:
    predictor: the model.
    classes: the labels of the support set, sorted.
    prepared: of each checkpoint, what all predictions share.
  """

  predictor: "Predictor"
  classes: tuple[Hashable, ...]
  prepared: tuple[learner_lib.Prepared, ...] = dataclasses.field(repr=False)

  def predict(self, images: Any) -> Predictions:
    """Classify examples, each by itself.

    The probabilities of an example depend on the model, the support set and
    this example only, not on the others of the call.

    Args:
      images: uint8 [n, H, W] or [n, H, W, 1 or 3] or a list of such images of
        any size, or float32 from 0 to 1, or Pillow's; or features of the
        model's shape.

    Raises:
      DataError: there are none, one cannot be used, or a probability is not
        finite; one sentence.
    """
    how = self.predictor.description.preprocessing
    return self._of_blocks(preprocessing.blocks(
        how, images, "the images to classify", _block(how)
    ))

  def predict_rows(self, rows: Iterable[np.ndarray]) -> Predictions:
    """Classify rows, as `preprocessing.row` makes them, in blocks."""
    size = _block(self.predictor.description.preprocessing)
    return self._of_blocks(preprocessing.stacked(rows, size))

  def _of_blocks(self, blocks: Iterable[np.ndarray]) -> Predictions:
    """Classify blocks of rows, one at a time."""
    how = self.predictor.description.preprocessing
    found, size = [], _block(how)
    for rows in blocks:
      values = _filled(preprocessing.scaled(how, rows), size)
      each = self.predictor.probabilities(
          len(self.classes), self.prepared, values, len(rows)
      )
      found.append(np.mean(each, axis=0)[: len(rows)])
    probabilities = np.concatenate(found)
    if not np.isfinite(probabilities).all():
      raise errors.DataError(
          "the adapted model has probabilities that are not finite: give more"
          " support images, or others"
      )
    return Predictions(classes=self.classes, probabilities=probabilities)


def _block(how: folder_lib.Preprocessing) -> int:
  """Return the number of rows of a block, a multiple of `_AT_ONCE`.

  It depends on their shape alone, so that one program serves all numbers.
  """
  most = _BYTES // (4 * math.prod(how.shape))
  return max(1, min(most, _BLOCK) // _AT_ONCE) * _AT_ONCE


def _filled(values: np.ndarray, size: int) -> np.ndarray:
  """Return values [n, ...] with zeros up to a size."""
  missing = ((0, size - len(values)), *((0, 0) for _ in values.shape[1:]))
  return np.pad(values, missing)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Predictor:
  """An exported model.

  A predictor is pickled as the contents of its folder, which are read and
  verified again.

  Attributes:
    contents: name -> bytes of every file of the folder.
    description: the content of model.json.
    statement: the privacy statement, computed again on loading.
    start: the public weights that were not trained, or None.
    network: the network as it was trained.
    members: the parameters of each checkpoint, and the moments of its public
      examples or None.
    make: the function of a network of own code, or None.
    compiled: number of classes -> the learner, and its compiled functions.
  """

  contents: Mapping[str, bytes] = dataclasses.field(repr=False)
  description: folder_lib.Description
  statement: Mapping[str, Any] = dataclasses.field(repr=False)
  start: Weights | None
  network: models.Model = dataclasses.field(repr=False)
  members: tuple[tuple[Any, Any], ...]
  make: Callable[..., models.Model] | None = None
  compiled: dict[int, tuple[learners.Learner, Any, Any]] = dataclasses.field(
      default_factory=dict, repr=False
  )

  @classmethod
  def load(
      cls,
      path: str | os.PathLike[str],
      *,
      model: Callable[..., models.Model] | None = None,
  ) -> "Predictor":
    """Read a folder that `episodic-dp export` wrote.

    Every file is compared with its digest, and the privacy statement is
    computed again.

    Args:
      path: path of the folder.
      model: function of a network of own code, make_model(outputs, input_shape,
        **options). The folder names its import path, and nothing is imported.

    Raises:
      RunError: a file is missing, changed or unknown, or the network is own
        code and not given; one sentence.
      PlanError: the privacy statement does not hold.
    """
    root = files.path_of(path)
    return cls.of_contents(folder_lib.read(root), root, model)

  @classmethod
  def of_contents(
      cls,
      contents: Mapping[str, bytes],
      root: pathlib.Path,
      model: Callable[..., models.Model] | None = None,
  ) -> "Predictor":
    """Read the contents of a folder; see `load`.

    Args:
      contents: name -> bytes of every file.
      root: the folder, for messages.
      model: function of a network of own code.
    """
    place = root / folder_lib.STATEMENT
    verification = statement_lib.verify_file(
        place, contents[folder_lib.STATEMENT]
    )
    verification.check(place)
    found = folder_lib.describe(
        contents[folder_lib.MODEL], str(root / folder_lib.MODEL)
    )
    if found.network.is_own and model is None:
      raise errors.RunError(
          f"the network of {root} is code of its publisher, which the folder"
          f" names {errors.shown(found.network.name)} and does not hold: if you"
          " have and trust it, call load with model=FUNCTION"
      )
    if missing := {*found.files} - {*contents}:
      raise errors.RunError(
          f"{root} lacks {errors.shown(sorted(missing))}, which"
          f" {folder_lib.MODEL} names: get the folder again from its publisher"
      )
    arrays = {
        name: _read_arrays(contents[name], str(root / name))
        for name in found.files
    }
    start = arrays[found.start] if found.start else None
    try:
      network = _network(found, found.network.outputs, start, model)
      learner = naming.make_learner(found.learner, network, way=found.way)
      like = jax.eval_shape(learner.init, jax.random.key(0))
      members = tuple(
          _member(found, learner, like, arrays[name], name)
          for name in found.weights
      )
    except ValueError as e:
      raise errors.RunError(
          f"{root / folder_lib.MODEL} does not describe a model: {e}"
      ) from e
    return cls(
        contents=contents,
        description=found,
        statement=verification.stated,
        start=start,
        network=network,
        members=members,
        make=model,
    )

  def __reduce__(self) -> tuple[Any, ...]:
    place = pathlib.Path("the pickled model")
    return Predictor.of_contents, (dict(self.contents), place, self.make)

  def save(self, path: str | os.PathLike[str]) -> None:
    """Write the folder again, as a new one.

    Raises:
      RunError: the folder exists and is not empty.
    """
    with files.new_folder(path) as place:
      for name, content in self.contents.items():
        (place / name).write_bytes(content)
      folder_lib.seal(place)

  @property
  def guarantees(self) -> Mapping[str, Mapping[str, Any]]:
    """Return level -> "epsilon" and the other fields of the statement."""
    return self.statement["guarantees"]

  def adapt(self, images: Any, labels: Sequence[Hashable]) -> Adapted:
    """Adapt to a support set; the predictor itself does not change.

    Args:
      images: as for `Adapted.predict`.
      labels: the class of each, names or numbers.

    Raises:
      DataError: an image or a label cannot be used, or the model does not take
        this number of classes; one sentence.
    """
    found = labels_lib.read("labels", labels).tolist()
    rows = preprocessing.of_arrays(
        self.description.preprocessing, images, "the support images"
    )
    return self.adapt_rows(rows, found)

  def adapt_rows(
      self, rows: np.ndarray, labels: Sequence[Hashable]
  ) -> Adapted:
    """Adapt to rows [n, ...], as `preprocessing.row` makes them."""
    if len(rows) != len(labels):
      raise errors.DataError(
          f"there are {len(rows)} support images and {len(labels)} labels: give"
          " one label for each image"
      )
    classes: tuple[Any, ...] = tuple(sorted(set(labels)))  # type: ignore
    if len(classes) < 2:
      raise errors.DataError(
          f"the support images are of {len(classes)} class: give images of at"
          " least two classes; files need a folder for each class"
      )
    learner, adapt, _ = self._functions(len(classes))
    numbers = {name: number for number, name in enumerate(classes)}
    values = preprocessing.scaled(self.description.preprocessing, rows)
    found = np.asarray([numbers[label] for label in labels], np.int32)
    model = learner.model
    mask = None
    # A network of own code that mixes examples takes them as they are.
    if model.moments is not None or not model.mixes_examples:
      size, mask = _AT_ONCE, np.ones(len(values), bool)
      while size < len(values):
        size *= _GROWTH
      values, found, mask = (_filled(a, size) for a in (values, found, mask))
    support = episodes.Examples(
        jnp.asarray(values),
        jnp.asarray(found),
        None if mask is None else jnp.asarray(mask),
    )
    return Adapted(
        predictor=self,
        classes=classes,
        prepared=tuple(
            adapt(params, moments, support) for params, moments in self.members
        ),
    )

  def probabilities(
      self,
      way: int,
      prepared: Sequence[learner_lib.Prepared],
      values: np.ndarray,
      count: int,
  ) -> list[np.ndarray]:
    """Return the probabilities [n, way] of scaled rows, for each checkpoint.

    Args:
      way: number of classes.
      prepared: for each checkpoint, from `adapt`.
      values: float32[n, ...], a block of rows.
      count: number of rows that count, the first ones.
    """
    _, _, probabilities = self._functions(way)
    return [
        np.asarray(probabilities(moments, own, values, count))
        for (_, moments), own in zip(self.members, prepared, strict=True)
    ]

  def _functions(self, way: int) -> tuple[learners.Learner, Any, Any]:
    """Return the learner for tasks of n classes, and its compiled functions."""
    if way not in self.compiled:
      learner = self._learner(way)

      def adapt(
          params: models_lib.Params,
          moments: models_lib.Moments,
          support: episodes.Examples,
      ) -> learner_lib.Prepared:
        return learner.normalised(moments).prepare(params, support)

      def probabilities(
          moments: models_lib.Moments,
          prepared: learner_lib.Prepared,
          images: jax.Array,
          count: jax.Array,
      ) -> jax.Array:
        parts = images.reshape(-1, _AT_ONCE, *images.shape[1:])
        own = learner.normalised(moments)

        def add(i: jax.Array, found: jax.Array) -> jax.Array:
          logits = own.answer(prepared, parts[i])
          return found.at[i].set(jax.nn.softmax(logits, axis=-1))

        found = jnp.zeros((len(parts), _AT_ONCE, way))
        last = (count + _AT_ONCE - 1) // _AT_ONCE
        found = lax.fori_loop(0, last, add, found)
        return found.reshape(-1, way)

      self.compiled[way] = (
          learner, backends.jit(adapt), backends.jit(probabilities)
      )
    return self.compiled[way]

  def _learner(self, way: int) -> learners.Learner:
    """Make the learner for tasks of n classes.

    Raises:
      DataError: the model has logits for another number of classes.
    """
    found = self.description
    outputs = found.network.outputs
    if found.fixed_way and way != outputs:
      raise errors.DataError(
          f"the support has {way} classes and this model"
          f" ({found.learner.name}) has {outputs} outputs: give"
          f" {outputs} classes, or take a model of"
          f" {' or '.join(options.named(options.CLOSED_FORM))}, which take any"
          " number"
      )
    if found.fine_tuning is None:
      return naming.make_learner(found.learner, self.network, way=way)
    network = _network(found, way, self.start, self.make)
    return naming.make_fine_tuning(network, found.fine_tuning)


def _member(
    found: folder_lib.Description,
    learner: learners.Learner,
    like: models_lib.Params,
    arrays: Weights,
    name: str,
) -> tuple[Any, Any]:
  """Return the parameters of a checkpoint, and its moments or None.

  Raises:
    DataError: they do not fit the learner; one sentence.
  """
  prefix = folder_lib.MOMENTS
  named = {k: a for k, a in arrays.items() if not k.startswith(prefix)}
  params = parts.of_names(like, parts.fitted(named, like, name))
  if not found.moments:
    return params, None
  if learner.model.moments is None:
    raise errors.DataError(
        "its network has no batch normalisation for its moments"
    )
  example = jax.ShapeDtypeStruct((1, *found.preprocessing.shape), jnp.float32)
  shapes = jax.eval_shape(
      learner.model.moments, learner.network_params(like), example, None
  )
  given = {
      k.removeprefix(prefix): a
      for k, a in arrays.items()
      if k.startswith(prefix)
  }
  return params, parts.of_names(shapes, parts.fitted(given, shapes, name))


def _read_arrays(content: bytes, name: str) -> dict[str, np.ndarray]:
  """Read the arrays of a safetensors file; nothing in it is executed.

  Raises:
    RunError: it is damaged; one sentence.
  """
  try:
    return safetensors.numpy.load(content)
  except Exception as e:  # It raises many types for damaged files.
    reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
    raise errors.RunError(
        f"{name} is not safetensors ({reason[:80]}): export the run again"
    ) from e


def _network(
    found: folder_lib.Description,
    outputs: int | None,
    start: Weights | None,
    make: Callable[..., models.Model] | None,
) -> models.Model:
  """Make the network, around the public start that it was trained from."""
  network, shape = found.network, found.preprocessing.shape
  if network.is_own and make is not None:
    model = builder.call(make, network, outputs, shape)
  else:
    model = networks.by_name(network, outputs, shape)
  if start is None:
    return model
  return models.start_from(
      model,
      start,
      trained=network.trained,
      rank=network.rank,
      source="the start",
  )

"""Load an exported model, adapt it to a few labelled examples, and predict.

Nothing that trains is imported here, and no file in a folder is executed: the
caller gives the function of a network of own code.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
import dataclasses
import json
import math
import os
import pathlib
from typing import Any
import warnings

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp import backends
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import options
from episodic_dp import plan
from episodic_dp.accounting import report
from episodic_dp.accounting import statement as statement_lib
from episodic_dp.data import backbone as backbone_lib
from episodic_dp.data import public as public_lib
from episodic_dp.data.own_data import readers
from episodic_dp.data.own_data import rows as rows_lib
from episodic_dp.errors import DataError
from episodic_dp.errors import RunError
from episodic_dp.errors import shown
from episodic_dp.export import card
from episodic_dp.export import folder as folder_lib
from episodic_dp.export import preprocessing
from episodic_dp.export import prototypes
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
    prepared: of each checkpoint, what all predictions share; none with
      `released`.
    released: the prototypes of an adaptation with a guarantee, or None.
  """

  predictor: "Predictor"
  classes: tuple[Hashable, ...]
  prepared: tuple[learner_lib.Prepared, ...] = dataclasses.field(repr=False)
  released: prototypes.Released | None = dataclasses.field(
      default=None, repr=False
  )

  @property
  def guarantee(self) -> report.Guarantee | None:
    """Return the guarantee of a unit that it was adapted to, or None."""
    if self.released is None:
      return None
    return self.released.guarantee

  def save(self, path: str | os.PathLike[str]) -> None:
    """Write the model and its noised prototypes as a new folder.

    `Predictor.load(path).adapted` reads it. The folder has the statements of
    the training and of the adaptation.

    Raises:
      UnsoundPlanError: it was adapted without a guarantee.
      RunError: the folder exists and is not empty.
    """
    if self.released is None:
      raise plan.UnsoundPlanError(
          "without noise this classifier shows its support images: adapt with"
          " epsilon=... to save it"
      )
    self.predictor.save(path)

  def predict(self, images: Any) -> Predictions:
    """Classify examples, each by itself.

    The probabilities of an example depend on the model, the support set and
    this example only, not on the others of the call.

    Args:
      images: uint8 [n, H, W] or [n, H, W, 1 or 3] or a list of such images of
        any size, or float32 from 0 to 1, or Pillow's; or features of the
        model's shape; or examples of a reader, each read when asked for.

    Raises:
      DataError: there are none, one cannot be used, or a probability is not
        finite; one sentence.
    """
    how = self.predictor.description.preprocessing
    found, size, what = [], _block(how), "the images to classify"
    bright: list[float] = []
    for rows in preprocessing.blocks(how, images, what, size, bright):
      values = self.predictor.scaled(rows)
      if self.released is None:
        each = self.predictor.probabilities(
            len(self.classes), self.prepared, values
        )
        found.append(np.mean(each, axis=0))
      else:
        embedded = self.predictor.embedded(values)
        found.append(self.released.probabilities(embedded))
    try:
      readers.check_bits(bright, what)
    except DataError as e:  # One image may be dark.
      warnings.warn(str(e), stacklevel=2)
    probabilities = np.concatenate(found)
    finite = np.isfinite(probabilities).all(axis=-1)
    if not finite.all():
      if all(np.isfinite(a).all() for a in jax.tree.leaves(self.prepared)):
        raise DataError(
            f"number {finite.argmin()} of the images to classify has"
            " probabilities that are not finite: leave it out"
        )
      raise DataError(
          "the adapted model has probabilities that are not finite: give more"
          " support images, or others"
      )
    return Predictions(classes=self.classes, probabilities=probabilities)


@jax.jit
def _softmax(logits: jax.Array) -> jax.Array:
  """Return probabilities; one program, where `jax.nn` compiles five."""
  return jax.nn.softmax(logits, axis=-1)


def _block(how: folder_lib.Preprocessing) -> int:
  """Return the number of rows of a block, a multiple of `_AT_ONCE`.

  It depends on their shape alone, so that one program serves all numbers.
  """
  most = _BYTES // (4 * math.prod(how.shape))
  return max(1, min(most, _BLOCK) // _AT_ONCE) * _AT_ONCE


def _in_parts(
    apply: Callable[[jax.Array], jax.Array], images: jax.Array, count: jax.Array
) -> jax.Array:
  """Return apply(images), [n, k], a few rows at a time.

  Args:
    apply: rows [`_AT_ONCE`, ...] -> [`_AT_ONCE`, k].
    images: [n, ...], a multiple of `_AT_ONCE`.
    count: number of rows that count, the first ones.
  """
  parts = images.reshape(-1, _AT_ONCE, *images.shape[1:])
  result = jax.eval_shape(apply, parts[0])

  def add(i: jax.Array, found: jax.Array) -> jax.Array:
    return found.at[i].set(apply(parts[i]))

  found = jnp.zeros((len(parts), *result.shape), result.dtype)
  last = (count + _AT_ONCE - 1) // _AT_ONCE
  found = lax.fori_loop(0, last, add, found)
  return found.reshape(-1, *result.shape[1:])


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
    backbone: the network that makes features of images, or None.
    released: of the folder of an adapted model, its prototypes, or None.
    compiled: number of classes -> the learner, and its compiled functions.
  """

  contents: Mapping[str, bytes] = dataclasses.field(repr=False)
  description: folder_lib.Description
  statement: Mapping[str, Any] = dataclasses.field(repr=False)
  start: Weights | None
  network: models.Model = dataclasses.field(repr=False)
  members: tuple[tuple[Any, Any], ...]
  make: Callable[..., models.Model] | None = None
  backbone: backbone_lib.Network | None = None
  released: prototypes.Released | None = dataclasses.field(
      default=None, repr=False
  )
  compiled: dict[int, Any] = dataclasses.field(
      default_factory=dict, repr=False
  )

  @classmethod
  def load(
      cls,
      path: str | os.PathLike[str],
      *,
      model: Callable[..., models.Model] | None = None,
      backbone: str | os.PathLike[str] | None = None,
  ) -> "Predictor":
    """Read a folder that `episodic-dp export` wrote.

    Every file is compared with its digest, and the privacy statement is
    computed again.

    Args:
      path: path of the folder.
      model: function of a network of own code, make_model(outputs, input_shape,
        **options). The folder names its import path, and nothing is imported.
      backbone: the ONNX file of its features, if the folder does not hold it.

    Raises:
      RunError: a file is missing, changed or unknown, or the network is own
        code and not given; or the model has no backbone; or JAX_ENABLE_X64 is
        set; one sentence.
      DataError: the backbone cannot be used, or is another one.
      PlanError: the privacy statement does not hold.
    """
    root = files.path_of(path)
    contents = folder_lib.read(root)
    if backbone is not None:
      contents[folder_lib.BACKBONE] = backbone_lib.read(backbone)
    return cls.of_contents(contents, root, model)

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
    backends.check_types()
    place = root / folder_lib.STATEMENT
    verification = statement_lib.verify_file(
        place, contents[folder_lib.STATEMENT]
    )
    verification.check(place)
    found = folder_lib.describe(
        contents[folder_lib.MODEL], str(root / folder_lib.MODEL)
    )
    if found.network.is_own and model is None:
      raise RunError(
          f"the network of {root} is code of its publisher, which the folder"
          f" names {shown(found.network.name)} and does not hold: if you"
          " have and trust it, load the model in Python with model=FUNCTION"
      )
    if missing := {*found.files} - {*contents}:
      raise RunError(
          f"{root} lacks {shown(sorted(missing))}, which"
          f" {folder_lib.MODEL} names: get the folder again from its publisher"
      )
    backbone = None
    if found.backbone is None and folder_lib.BACKBONE in contents:
      raise RunError(
          f"{root} is a model without a backbone: leave it out"
      )
    if found.backbone is not None:
      if folder_lib.BACKBONE not in contents:
        raise RunError(
            f"{root} does not hold its backbone, whose SHA-256 is"
            f" {found.backbone.digest}: give backbone=FILE (in a command"
            " --backbone=FILE)"
        )
      backbone = backbone_lib.opened(
          found.backbone, contents[folder_lib.BACKBONE],
          str(root / folder_lib.BACKBONE),
      )
      if backbone.shape != found.preprocessing.shape:
        raise RunError(
            f"{root / folder_lib.MODEL} has images of another size than its"
            " backbone: get the folder again from its publisher"
        )
    arrays = {
        name: folder_lib.read_arrays(contents[name], str(root / name))
        for name in found.files
    }
    start = arrays[found.start] if found.start else None
    try:
      folder_lib.check_work(found, contents)
      network = _network(found, found.network.outputs, start, model)
      learner = naming.make_learner(found.learner, network, way=found.way)
      like = jax.eval_shape(learner.init, jax.random.key(0))
      members = tuple(
          _member(found, learner, like, arrays[name], name)
          for name in found.weights
      )
    except ValueError as e:
      raise RunError(
          f"{root / folder_lib.MODEL} does not describe a model: {e}"
      ) from e
    released = None
    if folder_lib.ADAPTATION in contents:
      released = prototypes.read(contents, root, (len(members), network.way))
    return cls(
        contents=contents,
        description=found,
        statement=verification.stated,
        start=start,
        network=network,
        members=members,
        make=model,
        released=released,
        backbone=backbone,
    )

  def __reduce__(self) -> tuple[Any, ...]:
    place = pathlib.Path("the pickled model")
    return Predictor.of_contents, (dict(self.contents), place, self.make)

  def save(self, path: str | os.PathLike[str]) -> None:
    """Write the folder again, as a new one.

    A backbone that the folder did not hold stays apart.

    Raises:
      RunError: the folder exists and is not empty.
    """
    backbone = self.description.backbone
    apart = backbone is not None and not backbone.file
    with files.new_folder(path) as place:
      for name, content in self.contents.items():
        if name != folder_lib.BACKBONE or not apart:
          (place / name).write_bytes(content)
      folder_lib.seal(place)

  def scaled(self, rows: np.ndarray) -> np.ndarray:
    """Return rows [n, ...] as the network takes them, float32[n, ...]."""
    if self.backbone is None:
      return rows_lib.scaled(rows)
    return np.stack([self.backbone.features(row) for row in rows])

  @property
  def guarantees(self) -> Mapping[str, Mapping[str, Any]]:
    """Return level -> "epsilon" and the other fields of the statement."""
    return self.statement["guarantees"]

  @property
  def adapted(self) -> Adapted | None:
    """Return the adapted model of a folder that holds one, or None."""
    if self.released is None:
      return None
    return Adapted(
        predictor=self, classes=self.released.classes, prepared=(),
        released=self.released,
    )

  def adapt(
      self,
      images: Any,
      labels: Sequence[Hashable],
      people: Sequence[Hashable] | None = None,
      *,
      epsilon: float | None = None,
      delta: float | None = None,
      classes: Sequence[Hashable] | None = None,
      public: Any = None,
      neighbours: report.Relation = "add-or-remove",
      private_seed: int | None = None,
  ) -> Adapted:
    """Adapt to a support set; the predictor itself does not change.

    With `epsilon` the result holds class prototypes under noise, and nothing
    else of the images; its proof is in `export.prototypes`. Its guarantee is
    for a person, all of their images of all classes, or without `people` for
    one image. Every such call is one release: adapting twice to the same people
    costs twice, and the caller adds it up (`episodic-dp account --ledger`).

    Args:
      images: as for `Adapted.predict`.
      labels: the class of each, names or numbers.
      people: with `epsilon`, the person of each, names or numbers.
      epsilon: the budget of a person or an image, above 0; None to adapt
        without a guarantee.
      delta: in (0, 1); None for the largest power of ten below 1 / (10 N), for
        N people or images.
      classes: all names that a label may have, which are public. Without them
        the names are those of the labels, which are taken to be public.
      public: public examples without labels, of the kind that is classified.
        The mean of their embeddings is the centre from which directions are
        measured; the nearer it is to that of the private ones, the less the
        noise costs. None takes generated images, and zero for features.
      neighbours: "add-or-remove" or "replace-one".
      private_seed: seed of the noise, with which there is no guarantee against
        anyone who knows it; None for a secret key.

    Raises:
      DataError: an image or a label cannot be used, or the model does not take
        this number of classes; one sentence.
      PlanError: a number is out of range, or `epsilon` is missing.
      UnsoundPlanError: no guarantee is proved: the model adapts by gradient
        steps, an image moves the embeddings of others, or a class has one
        person's images alone and `classes` is not given.
    """
    how = self.description.preprocessing
    labels = labels_lib.read("labels", labels).tolist()
    rows = preprocessing.of_arrays(how, images, "the support images")
    if epsilon is None:
      given = (people, delta, classes, public, private_seed)
      usual = neighbours == report.RELATIONS[0]
      if not usual or any(one is not None for one in given):
        raise plan.PlanError(
            "people, delta, classes, public, neighbours and private_seed belong"
            " to an adaptation with a guarantee: give epsilon, such as"
            " epsilon=1.0, or leave them out"
        )
      return self._adapted_to(rows, labels)
    if public is not None:
      public = preprocessing.of_arrays(how, public, "the public examples")
    prototypes.check_sound(self.description, self.network)
    if classes is not None:
      classes = labels_lib.read("classes", classes).tolist()
    names, found = _numbered(len(rows), labels, classes)
    level, units = _units(len(rows), people)
    if classes is None:
      prototypes.check_shared(names, found, units, level)
    centre = self._centre(public)
    # People may bring many images: only a block is scaled at a time.
    embedded = np.concatenate([
        self.embedded(self.scaled(block))
        for block in preprocessing.stacked(rows, _block(how))
    ])
    total = prototypes.clipped_sum(
        prototypes.directions(embedded, centre), found, units, len(names)
    )
    backbone = self.description.backbone
    digest = backbone.digest if backbone else None
    released = prototypes.release(
        total, centre, names, units=int(units.max()) + 1, level=level,
        epsilon=epsilon, delta=delta, neighbours=neighbours,
        private_seed=private_seed, backbone=digest,
    )
    text = self.contents.get(folder_lib.CARD, b"").decode(errors="replace")
    statement = released.statement
    added = {
        folder_lib.CARD: card.with_adaptation(text, statement).encode(),
        folder_lib.ADAPTATION: json.dumps(statement, indent=2).encode(),
        folder_lib.PROTOTYPES: released.encoded(),
    }
    adapted = dataclasses.replace(
        self, contents={**self.contents, **added}, released=released
    ).adapted
    assert adapted is not None  # It has prototypes.
    return adapted

  def _adapted_to(
      self, rows: np.ndarray, labels: Sequence[Hashable]
  ) -> Adapted:
    """Adapt to rows [n, ...] without a guarantee."""
    classes, found = _numbered(len(rows), labels)
    learner, adapt, *_ = self._functions(len(classes))
    # A set has no order, but sums are rounded in one, which the inner steps of
    # a deep network enlarge: it is by class, then by content.
    order = sorted(
        range(len(rows)), key=lambda i: (found[i], rows[i].tobytes())
    )
    inputs, found = self._inputs(self.scaled(rows[order])), found[order]
    model, count = learner.model, len(rows)
    mask = None
    # A network of own code that mixes examples takes them as they are.
    if model.moments is not None or not model.mixes_examples:
      size, mask = _AT_ONCE, np.ones(count, bool)
      while size < count:
        size *= _GROWTH
      found, mask, *inputs = (_filled(a, size) for a in (found, mask, *inputs))
    prepared = []
    for (params, moments), values in zip(self.members, inputs, strict=True):
      support = episodes.Examples(*map(jnp.asarray, (values, found)))
      if mask is not None:
        support = support._replace(mask=jnp.asarray(mask))
      prepared.append(adapt(params, moments, support))
    return Adapted(predictor=self, classes=classes, prepared=tuple(prepared))

  def probabilities(
      self,
      way: int,
      prepared: Sequence[learner_lib.Prepared],
      values: np.ndarray,
  ) -> list[np.ndarray]:
    """Return the probabilities [n, way] of scaled rows, for each checkpoint.

    Args:
      way: number of classes.
      prepared: for each checkpoint, from `adapt`.
      values: float32[n, ...], at most a block.
    """
    _, _, logits, _ = self._functions(way)
    count, size = len(values), _block(self.description.preprocessing)
    found = []
    for (_, moments), own, inputs in zip(
        self.members, prepared, self._inputs(values), strict=True
    ):
      scores = logits(moments, own, _filled(inputs, size), count)
      # The softmax is apart: XLA fuses it with the logits, which it then rounds
      # in two ways, so that large ones have no maximum.
      found.append(np.asarray(_softmax(scores))[:count])
    return found

  @property
  def _embeds(self) -> bool:
    """Return whether an image's embedding is the same in all tasks."""
    closed = self.description.learner.adaptation == options.CLOSED_FORM
    _, moments = self.members[0]
    return closed and (moments is not None or not self.network.mixes_examples)

  def _inputs(self, values: np.ndarray) -> list[np.ndarray]:
    """Return what the learner takes of scaled rows, for each checkpoint."""
    if not self._embeds:
      return [values] * len(self.members)
    return [*self._all_embedded(values).swapaxes(0, 1)]

  def _all_embedded(self, values: np.ndarray) -> np.ndarray:
    """Return float32[n, members, d], the embeddings of scaled rows."""
    size = _block(self.description.preprocessing)
    blocks = preprocessing.stacked(values, size)
    return np.concatenate([*map(self.embedded, blocks)])

  def embedded(self, values: np.ndarray) -> np.ndarray:
    """Return float32[n, members, d], the embeddings of at most a block.

    Args:
      values: float32[n, ...], scaled rows.
    """
    *_, embed = self._functions(2)  # For any number of classes.
    filled = _filled(values, _block(self.description.preprocessing))
    found = [
        np.asarray(embed(*member, filled, len(values)))
        for member in self.members
    ]
    return np.stack(found, axis=1)[: len(values)]

  def _centre(self, public: np.ndarray | None) -> np.ndarray:
    """Return float32[members, d], the mean embedding of public rows.

    Raises:
      DataError: it is not finite.
    """
    how = self.description.preprocessing
    values = None
    if public is not None:
      values = self.scaled(public)
    elif how.kind == "image":
      values = public_lib.examples(None, how.shape)
      if self.backbone is not None and values is not None:
        values = self.scaled(rows_lib.rounded(values))
    if values is None:
      size = self.network.way
      assert size is not None  # Known of every exported network.
      return np.zeros((len(self.members), size), np.float32)
    embedded = self._all_embedded(values)
    centre = embedded.mean(axis=0, dtype=np.float64)
    if not np.isfinite(centre).all():
      raise DataError(
          "the public examples have embeddings that are not finite: give others"
      )
    return centre.astype(np.float32)

  def _functions(self, way: int) -> tuple[learners.Learner, Any, Any, Any]:
    """Return the learner for tasks of n classes, and its compiled functions."""
    if way not in self.compiled:
      network = self._learner(way)
      heads = network.on_features() if self._embeds else None

      def of_inputs(moments: models_lib.Moments) -> learners.Learner:
        return heads or network.normalised(moments)

      def adapt(
          params: models_lib.Params,
          moments: models_lib.Moments,
          support: episodes.Examples,
      ) -> learner_lib.Prepared:
        return of_inputs(moments).prepare(params, support)

      def logits(
          moments: models_lib.Moments,
          prepared: learner_lib.Prepared,
          images: jax.Array,
          count: jax.Array,
      ) -> jax.Array:
        own = of_inputs(moments)
        return _in_parts(
            lambda part: own.answer(prepared, part), images, count
        )

      def embed(
          params: models_lib.Params,
          moments: models_lib.Moments,
          images: jax.Array,
          count: jax.Array,
      ) -> jax.Array:
        weights = network.network_params(params)
        apply = network.normalised(moments).model.apply
        return _in_parts(lambda part: apply(weights, part), images, count)

      self.compiled[way] = (
          heads or network, backends.jit(adapt), backends.jit(logits),
          backends.jit(embed),
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
      raise DataError(
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


def _units(
    count: int, people: Sequence[Hashable] | None
) -> tuple[str, np.ndarray]:
  """Return the level of a unit, and int[n], the unit of each image.

  Raises:
    DataError: they are not as many as the images.
  """
  if people is None:
    return "example", np.arange(count)
  owners = labels_lib.read("people", people)
  if len(owners) != count:
    raise DataError(
        f"there are {count} support images and {len(owners)} people: give the"
        " person of each image"
    )
  return "person", np.unique(owners, return_inverse=True)[1]


def _numbered(
    count: int,
    labels: Sequence[Hashable],
    classes: Sequence[Hashable] | None = None,
) -> tuple[tuple[Any, ...], np.ndarray]:
  """Return the names of the classes, sorted, and int32[n], that of each image.

  Args:
    count: number of images.
    labels: the class of each.
    classes: names that a label may have; None for those of the labels.

  Raises:
    DataError: they do not fit; one sentence.
  """
  if count != len(labels):
    raise DataError(
        f"there are {count} support images and {len(labels)} labels: give"
        " one label for each image"
    )
  if classes is None:
    classes = labels
  names: tuple[Any, ...] = tuple(sorted(set(classes)))  # type: ignore
  if len(names) < 2:
    raise DataError(
        f"the support images are of {len(names)} class: give images of at"
        " least two classes; files need a folder for each class"
    )
  numbers = {name: number for number, name in enumerate(names)}
  for label in labels:
    if label not in numbers:
      raise DataError(
          f"the label {shown(label)} is not in classes: add it there, or"
          " leave its images out"
      )
  return names, np.asarray([numbers[label] for label in labels], np.int32)


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
    raise DataError(
        "its network has no batch normalisation for its moments"
    )
  example = jax.ShapeDtypeStruct((1, *found.shape), jnp.float32)
  shapes = jax.eval_shape(
      learner.model.moments, learner.network_params(like), example, None
  )
  given = {
      k.removeprefix(prefix): a
      for k, a in arrays.items()
      if k.startswith(prefix)
  }
  return params, parts.of_names(shapes, parts.fitted(given, shapes, name))


def _network(
    found: folder_lib.Description,
    outputs: int | None,
    start: Weights | None,
    make: Callable[..., models.Model] | None,
) -> models.Model:
  """Make the network, around the public start that it was trained from."""
  network, shape = found.network, found.shape
  if network.is_own and make is not None:
    model = builder.call(make, network, outputs, shape)
  else:
    model = networks.by_name(network, outputs, shape)
  model = model._replace(mirror=found.mirror)
  if start is None:
    return model
  return models.start_from(model, start, trained=network.trained)

"""The sections of a config, each a frozen dataclass.

A section is read once: a field that nothing reads is refused by its name, and
so is a value of another kind. What a run cannot do without is asked for where
something is built of it (`RunConfig.check_complete`).
"""

from collections.abc import Mapping
import dataclasses
import types
from typing import (
  Annotated,
  Any,
  ClassVar,
  get_args,
  get_origin,
  get_type_hints,
  Literal,
  TypeAlias,
  TypeVar,
  Union,
)

from episodic_dp import plan as plan_lib
from episodic_dp.errors import shown

OPTIMIZERS = ("adam", "sgd")

# A number of things, of which there is at least that one.
Count: TypeAlias = Annotated[int, 1]

_S = TypeVar("_S", bound="Section")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
  """What the sections share: their name, and which fields have to be there."""

  NAME: ClassVar[str]
  NEEDED: ClassVar[tuple[str, ...]] = ()

  @classmethod
  def needed(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that these values of a section cannot do without."""
    del values
    return cls.NEEDED

  def check(self) -> None:
    """PlanError for values that nothing can be built of."""


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
  if value not in known:
    raise plan_lib.PlanError(f"{name}={value!r} must be one of {known}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data(Section):
  """Which data, and how they are made or divided.

  Attributes:
    name: one of `data.NAMES`.
    options: of the `load` of that data set.
    most_copies: level -> how many primary units hold one same record, of
      synthetic participants (`release.hierarchy_of` reads it).
  """

  NAME = "data"
  NEEDED = ("name",)

  name: str = ""
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  most_copies: Mapping[str, Any] | None = None


_CONVOLUTIONS = ("width", "norm")
# What the networks of the library read of `Model`.
NETWORKS: dict[str, tuple[str, ...]] = {
    "conv4": (*_CONVOLUTIONS, "library"),
    "conv6": _CONVOLUTIONS,
    "resnet12": _CONVOLUTIONS,
    "conv1d": _CONVOLUTIONS,
    "mlp": ("widths",),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model(Section):
  """The network; see `networks.make_model`.

  Attributes:
    name: conv4, conv6, resnet12, conv1d, mlp, or MODULE:FUNCTION, own code.
    width: channels of a convolutional network's first block.
    norm: of these: batch, group or none.
    library: of conv4: flax or haiku.
    widths: of the hidden layers of mlp.
    outputs: None for what the learner needs.
    options: keywords of own code.
    start: file of public weights to begin with, .npz or .safetensors.
    start_digest: what its arrays must be; a run records what they were.
    trained: what of the network is: all, scale_shift, low_rank or head.
    rank: of low_rank.
    source_digest: of the file of own code; a run records it.
    shapes_digest: of the names and shapes of its parameters; likewise.
  """

  NAME = "model"

  name: str = "conv4"
  width: Count = 64
  norm: Literal["batch", "group", "none"] = "batch"
  library: Literal["flax", "haiku"] = "flax"
  widths: tuple[int, ...] = (40, 40)
  outputs: int | None = None
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  start: str | None = None
  start_digest: str | None = None
  trained: Literal["all", "scale_shift", "low_rank", "head"] = "all"
  rank: int = 4
  source_digest: str | None = None
  shapes_digest: str | None = None

  @property
  def is_own(self) -> bool:
    """Whether it is code of the user's own."""
    return ":" in self.name

  @classmethod
  def needed(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Those that the network of this name reads, but for what has a default."""
    name = values.get("name") or "conv4"
    return tuple(f for f in NETWORKS.get(name, ()) if f != "widths")

  def check(self) -> None:
    """PlanError for an unknown network, or one that is frozen at random."""
    if not self.is_own and self.name not in NETWORKS:
      raise plan_lib.PlanError(
          f"model.name={self.name!r} must be one of {tuple(NETWORKS)}, or"
          " MODULE:FUNCTION, a function of your own such as"
          " my_module:make_model"
      )
    if self.start is None and self.trained != "all":
      raise plan_lib.PlanError(
          f"model.trained={self.trained!r} leaves the rest of the network as it"
          " begins, which is random: give public weights with"
          " --config.model.start=FILE, or leave trained out"
      )


_ADAPTING = ("inner_steps", "inner_rate")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learner(Section):
  """What is trained; `learners.make_learner` says who reads which field."""

  NAME = "learner"

  name: str = "maml"
  inner_steps: Count = 5
  inner_rate: float = 0.1
  order: Literal["first", "second"] = "second"
  learned_rates: bool = False
  per_step_norm: bool = False
  multi_step_loss: int = 0
  ridge: float = 1.0
  ridge_scale: float = 10.0
  metric: Literal["euclidean", "cosine"] = "euclidean"
  metric_scale: float = 1.0

  @classmethod
  def needed(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Those that the learner of this name reads; switches may be left out."""
    return {
        "maml": (*_ADAPTING, "order"),
        "anil": (*_ADAPTING, "order"),
        "meta_sgd": (*_ADAPTING, "order"),
        "reptile": _ADAPTING,
    }.get(values.get("name") or "maml", ())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer(Section):
  """The outer optimiser.

  Its rate rises from 0 over the first `warm_up` steps, and falls from `rate` to
  `final_rate` over the others.

  Attributes:
    momentum: of the gradients: beta_1 of Adam, or of SGD.
    second_momentum: beta_2 of Adam.
    average: of the iterates, which is then the model (`private.averaging`): the
      decay, such as 0.95 for about the last twenty steps; 0 for the last alone.
  """

  NAME = "optimizer"
  NEEDED = ("name", "rate", "final_rate")

  name: str = "adam"
  rate: float = 0.01
  final_rate: float = 0.001
  warm_up: int = 0
  momentum: float | None = None
  second_momentum: float | None = None
  average: float = 0.0

  def check(self) -> None:
    """PlanError for an unknown name, or a number out of its range."""
    _one_of("optimizer.name", self.name, OPTIMIZERS)
    for name in ("momentum", "second_momentum", "average"):
      value = getattr(self, name)
      if value is not None and not 0 <= value < 1:
        raise plan_lib.PlanError(
            f"optimizer.{name}={value} must be at least 0 and below 1"
        )
    if self.name == "sgd" and self.second_momentum is not None:
      raise plan_lib.PlanError(
          f"optimizer.second_momentum={self.second_momentum} is not read by"
          " optimizer.name='sgd': leave it out"
      )
    if self.warm_up < 0:
      raise plan_lib.PlanError(
          f"optimizer.warm_up={self.warm_up} must be a number of steps, 0 for"
          " none"
      )
    if not (self.rate > 0 and 0 <= self.final_rate <= self.rate):
      raise plan_lib.PlanError(
          f"optimizer.rate={self.rate} and final_rate={self.final_rate}: the"
          " rate must be positive and must not rise"
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation(Section):
  """What happens to training images; see `models.Augmentation`."""

  NAME = "augmentation"

  shift: int = 0
  flip: bool = False
  colour: float = 0.0
  draws: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation(Section):
  """The public validation and test tasks.

  Attributes:
    shot: support examples of each class.
    query: query examples of each class.
    every: steps between validations.
    validation_tasks: how many there are.
    test_tasks: likewise.
    seed: public; that of the test tasks is one more.
    way: classes of a task, where training has no episode.
  """

  NAME = "evaluation"
  NEEDED = (
      "shot", "query", "every", "validation_tasks", "test_tasks", "seed",
  )

  shot: Count = 1
  query: Count = 1
  every: Count = 25
  validation_tasks: Count = 100
  test_tasks: Count = 600
  seed: int = 1
  way: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute(Section):
  """How a step is computed; see `private.Compute`.

  Attributes:
    microbatch_size: tasks computed at once; None for what the device suits.
    resident: whether the images lie on the device.
    devices: how many share the tasks; None for all there are.
    noise_terms: how many terms the noise is a sum of; None for one.
  """

  NAME = "compute"

  microbatch_size: Count | None = None
  resident: bool = True
  devices: Count | None = None
  noise_terms: Count | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuning(Section):
  """What test tasks do with their support, for a learner of examples.

  Attributes:
    steps: on the support set.
    rate: of these steps.
    body: train the whole network, not the head alone.
    optimizer: sgd or adam.
  """

  NAME = "fine_tuning"

  steps: Count = 30
  rate: float = 0.1
  body: bool = False
  optimizer: str = "sgd"


def parse(cls: type[_S], config: Mapping[str, Any]) -> _S:
  """Reads a section of a config; one that is missing has its defaults.

  Raises:
    PlanError: a field is unknown or of another kind.
  """
  values = config.get(cls.NAME)
  if values is None:
    return cls()
  fields = get_type_hints(cls, include_extras=True)
  known = tuple(field.name for field in dataclasses.fields(cls))
  checked(cls.NAME, values, Mapping)
  values = fields_of(config, cls.NAME, (), known)
  return cls(**{
      name: checked(f"{cls.NAME}.{name}", value, fields[name])
      for name, value in values.items()
      if value is not None or type(None) in get_args(fields[name])
  })


def fields_of(
    config: Mapping[str, Any],
    section: str,
    required: tuple[str, ...],
    optional: tuple[str, ...],
) -> dict[str, Any]:
  """The fields of a section; PlanError for missing and for unknown ones."""
  values = config.get(section)
  if not isinstance(values, Mapping):
    raise plan_lib.PlanError(
        f"config.{section} is missing: it needs {', '.join(required)}"
    )
  for name in required:
    if values.get(name) is None:
      raise plan_lib.PlanError(f"config.{section}.{name} is missing: set it")
  known = (*required, *optional)
  for name in sorted(set(values) - set(known), key=str):
    raise plan_lib.PlanError(
        f"config.{section}.{name} is not read by anything: use"
        f" {', '.join(known)}"
    )
  return {name: values[name] for name in known if name in values}


_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool, int), "True or False"),
    float: ((float, int), "a number"),
    int: ((int,), "a whole number"),
    str: ((str,), "a name"),
    Literal: ((str,), "a name"),
    Mapping: ((Mapping,), "fields by name"),
    tuple: ((tuple, list), "a tuple of whole numbers"),
}


def checked(name: str, value: Any, hint: Any) -> Any:
  """The value of a field, if it is of the kind that its annotation says.

  Raises:
    PlanError: it is not, or none of the names or fewer than there must be;
      names the field.
  """
  kinds, least = [hint], None
  if get_origin(hint) in (types.UnionType, Union):
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    if value is None:
      return None
  if get_origin(kinds[0]) is Annotated:
    *kinds, least = get_args(kinds[0])
  kind = get_origin(kinds[0]) or kinds[0]
  accepted, wanted = _KINDS[kind]
  wrong = not isinstance(value, accepted)
  if isinstance(value, bool) and kind is not bool:
    wrong = True
  if kind is tuple and not wrong:
    value = tuple(value)
    wrong = not all(type(number) is int for number in value)
  if wrong:
    raise plan_lib.PlanError(
        f"config.{name} is {shown(value)}: give {wanted}"
    )
  if kind is Literal:
    _one_of(f"config.{name}", value, get_args(kinds[0]))
  if least is not None and value < least:
    raise plan_lib.PlanError(
        f"config.{name} is {value}: give {wanted} of at least {least}, such as"
        f" --config.{name}={least}"
    )
  return value

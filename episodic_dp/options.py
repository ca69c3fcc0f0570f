"""Settings of networks, learners and training, as frozen dataclasses.

Each class is the only description of its options: configs, presets, flags,
config.json and exported models read its fields. The builders
(`models.networks.by_name`, `learners.naming.make_learner`, `Run.build`) take
its objects. This module does not import JAX, so that a run is read and
accounted for without it.
"""

from collections.abc import Mapping
import dataclasses
import importlib
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from episodic_dp import _validate
from episodic_dp.errors import RunError
from episodic_dp.plain import Count
from episodic_dp.plain import Fraction
from episodic_dp.plain import NotNegative
from episodic_dp.plain import Positive
from episodic_dp.plain import Whole

Order = Literal["first", "second"]

NETWORKS = ("conv4", "resnet12", "conv1d", "mlp", "features")
"""The networks of the library."""


AUTO = "auto"
STARTS = {1: "glyphs", 3: "scenes"}
"""Channels of an image -> start of the library."""
START_WIDTH = 32
COSINE = "scenes"  # The start that was trained with cosine distances.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
  """A network, and the public weights that it starts from.

  Attributes:
    name: network of the library (conv4, resnet12, conv1d, mlp or features), or
      MODULE:FUNCTION for a function of your own.
    width: number of channels of a convolutional network's first block.
    norm: normalisation of a convolutional network.
    widths: number of units of each hidden layer of mlp.
    linear: whether features has a linear map, the identity at first.
    cosine: whether the features that a metric learner compares have one length,
      for cosine instead of Euclidean distances, with a learned temperature in
      the network features; the start scenes of a new run sets it.
    outputs: number of logits, or of features of an mlp under a metric learner;
      None for the number that the learner needs, or the last of widths.
    options: keyword arguments of MODULE:FUNCTION.
    start: file of public weights to start from, .npz or .safetensors, or the
      name of weights of the library; "auto" for those that fit images of the
      user's own, if any do; None for random weights.
    start_digest: required digest of the arrays in start; a run records it.
    trained: part of the network that is trained; anything but "all" needs a
      start.
  """

  name: str = "conv4"
  width: Count = 64
  norm: Literal["batch", "group", "none"] = "batch"
  widths: tuple[int, ...] = (40, 40)
  linear: bool = True
  cosine: bool = False
  outputs: Count | None = None
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  start: str | None = None
  start_digest: str | None = None
  trained: Literal["all", "scale_shift", "head"] = "all"

  def __post_init__(self) -> None:
    if not self.is_own:
      _validate.one_of("model.name", self.name, (*NETWORKS, "MODULE:FUNCTION"))
    # With a digest it is the start of a run that recorded its distances.
    if self.start == COSINE and self.start_digest is None:
      object.__setattr__(self, "cosine", True)  # The dataclass is frozen.

  @property
  def is_own(self) -> bool:
    """Return whether the name is MODULE:FUNCTION."""
    return ":" in self.name

  def with_start(self, channels: int) -> "Network":
    """Return the network with its start for images of this many channels.

    The start "auto" becomes that of the library, or none if no start fits this
    network or the images.
    """
    if self.start != AUTO:
      return self
    if channels in STARTS and (self.name, self.width) == ("conv4", START_WIDTH):
      return dataclasses.replace(self, start=STARTS[channels])
    return dataclasses.replace(self, start=None, trained="all")


def upgraded_network(data: Any) -> Any:
  """Return the plain data of a `Network`, also of one with a rank, as in 2.x.

  Raises:
    RunError: the rank was that of its trained matrices.
  """
  if not isinstance(data, Mapping):
    return data
  if data.get("trained") == "low_rank":
    raise RunError(
        "trained='low_rank': version 2.0 or 2.1 of episodic_dp trained it, and"
        " this version does not: use the version that wrote it"
    )
  return {name: value for name, value in data.items() if name != "rank"}


STEPS, CLOSED_FORM, SUPERVISED = "steps", "closed form", "supervised"


class Registered(NamedTuple):
  """A learner that a run can name.

  Attributes:
    place: MODULE:CLASS, a `learners.Learner`. It is imported when it is built:
      it imports JAX, which a run does without that is only accounted for.
    adaptation: STEPS, by gradient steps of a network with an output for each
      class; CLOSED_FORM, a head that is computed from features; or SUPERVISED,
      none, since it learns from single examples.
  """

  place: str
  adaptation: str

  def load(self) -> Any:
    """Return the class."""
    module, name = self.place.split(":")
    return getattr(importlib.import_module(module), name)


LEARNERS = {
    "maml": Registered("episodic_dp.learners.maml:MAML", STEPS),
    "anil": Registered("episodic_dp.learners.maml:ANIL", STEPS),
    "meta_sgd": Registered("episodic_dp.learners.maml:MetaSGD", STEPS),
    "reptile": Registered("episodic_dp.learners.reptile:Reptile", STEPS),
    "protonet": Registered("episodic_dp.learners.heads:ProtoNet", CLOSED_FORM),
    "ridge": Registered("episodic_dp.learners.heads:RidgeHead", CLOSED_FORM),
    SUPERVISED: Registered(
        "episodic_dp.learners.learner:Supervised", SUPERVISED
    ),
}
"""Name -> learner. A new one is its module, and a line here."""


def named(adaptation: str) -> list[str]:
  """Return the names of the learners that adapt in this way."""
  return [k for k, found in LEARNERS.items() if found.adaptation == adaptation]


def _check_name(field: str, value: str) -> str:
  """Return the name of a learner, or raise PlanError."""
  return _validate.one_of(field, value, LEARNERS)


LearnerName: TypeAlias = Annotated[str, _check_name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnerOptions:
  """A learner; each learner reads only some of the fields.

  Attributes:
    name: learner.
    inner_steps: number of gradient steps on a support set, for maml, anil,
      meta_sgd and reptile.
    inner_rate: learning rate of the inner steps; the initial one if it is
      learned.
    order: order of the outer gradient through the inner steps, for maml, anil
      and meta_sgd.
    learned_rates: whether maml and anil learn the rates of their inner steps.
    per_step_norm: whether every inner step has its own norm parameters, for
      maml, anil and meta_sgd.
    multi_step_loss: number of outer steps over which the losses of the earlier
      inner steps fade out, for maml, anil and meta_sgd; 0 uses the loss of the
      last inner step from the start.
    ridge: initial regularisation strength of ridge.
    ridge_scale: initial scale of the logits of ridge.
    metric_scale: scale of the squared distances of protonet.
    rotate_support: whether all images of a training task take turns as the
      support set, for protonet and ridge.
  """

  name: LearnerName = "maml"
  inner_steps: Count = 5
  inner_rate: float = 0.1
  order: Order = "second"
  learned_rates: bool = False
  per_step_norm: bool = False
  multi_step_loss: Whole = 0
  ridge: float = 1.0
  ridge_scale: float = 10.0
  metric_scale: float = 1.0
  rotate_support: bool = False

  @property
  def adaptation(self) -> str:
    """Return how it adapts to a task; see `Registered`."""
    return LEARNERS[self.name].adaptation


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningOptions:
  """Training of a new head on the support set of a test task.

  Attributes:
    steps: number of gradient steps on a support set.
    rate: learning rate of these steps.
    body: whether the whole network is trained, not the head alone.
    optimizer: optimizer of these steps.
  """

  steps: Count = 30
  rate: Positive = 0.1
  body: bool = False
  optimizer: Literal["sgd", "adam"] = "sgd"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer:
  """The outer optimizer.

  Its rate rises from 0 over the first `warm_up` steps, and falls from `rate` to
  `final_rate` over the others, as a cosine.

  Attributes:
    name: optimizer of the outer steps.
    rate: highest learning rate.
    final_rate: learning rate of the last step.
    warm_up: number of steps over which the rate rises from 0.
    momentum: beta_1 of Adam, or the momentum of SGD; None for 0.9 with Adam and
      0 with SGD.
    second_momentum: beta_2 of Adam; None for 0.999.
    average: decay of an exponential average of the iterates, which becomes the
      model, such as 0.95 for about the last twenty steps; None keeps the last
      iterate.
  """

  name: Literal["adam", "sgd"] = "adam"
  rate: Positive = 0.01
  final_rate: NotNegative = 0.001
  warm_up: Whole = 0
  momentum: Fraction | None = None
  second_momentum: Fraction | None = None
  average: Fraction | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation:
  """Random changes of a training image [H, W, C].

  Attributes:
    flip: whether an image is mirrored left to right with probability 1/2.
    multiplicity: number of augmented copies of a task, whose gradients are
      averaged before clipping; the time of a step is proportional to it.
  """

  flip: bool = False
  multiplicity: Count = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
  """The public validation and test tasks.

  Attributes:
    shot: number of support examples of each class.
    query: number of query examples of each class.
    every: number of steps between validations.
    validation_tasks: number of validation tasks.
    test_tasks: number of test tasks.
    seed: public seed of the validation tasks; the test tasks use seed + 1.
    way: number of classes of a task; None for plan.episode.way. Only a metric
      learner can have another number than its training tasks.
  """

  shot: Count = 1
  query: Count = 1
  every: Count = 25
  validation_tasks: Count = 100
  test_tasks: Count = 600
  seed: int = 1
  way: Count | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
  """Placement of a step; no setting changes its guarantee.

  Attributes:
    microbatch_size: number of tasks that a device computes together; None for a
      default of the kind of device.
    resident: whether all images stay on the device.
    devices: number of devices that share the tasks; None for all.
    noise_terms: number of independent normal samples whose sum is the noise.
  """

  microbatch_size: Count | None = None
  resident: bool = True
  devices: Count | None = None
  noise_terms: Count = 1

"""The base classes of learners, supervised learning, and task losses."""

import abc
from collections.abc import Callable
import copy
import dataclasses
import inspect
from typing import Any, Literal, NamedTuple, Self

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp import _validate
from episodic_dp import backends
from episodic_dp import options
from episodic_dp.models import model as model_lib
from episodic_dp.models.model import Params
from episodic_dp.sampling import episodes

Order = Literal["first", "second"]
TaskLoss = Callable[[jax.Array, jax.Array], jax.Array]  # (outputs, labels)
# Maps the loss of an inner step, (params, examples, step) -> scalar, to its
# gradient, (params, examples, step) -> like params.
InnerGradient = Callable[
    [Callable[[Params, episodes.Examples, jax.Array | int], jax.Array]],
    Callable[..., Params],
]


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
  """Compute the mean cross entropy, in nats.

  Args:
    logits: float [n, way].
    labels: int32 [n], from 0 to way - 1.

  Returns:
    A scalar.
  """
  # Lazy import: predictions have no loss.
  import optax

  return optax.softmax_cross_entropy_with_integer_labels(
      logits, labels
  ).mean()


def squared_error(outputs: jax.Array, targets: jax.Array) -> jax.Array:
  """Compute the mean squared error of regression.

  Args:
    outputs: float [n, k].
    targets: float [n, k].

  Returns:
    A scalar, the mean of (output - target)^2 over all entries.
  """
  return jnp.mean(jnp.square(outputs - targets))


class Prepared(NamedTuple):
  """Adapted parameters and support statistics, which all predictions share.

  Attributes:
    adapted: the result of `Learner.adapt`.
    seen: of the support set, for a network that mixes examples; see
      `models.Model.seen`.
  """

  adapted: Params
  seen: model_lib.Moments | jax.Array | None


class Learner(abc.ABC):
  """The base class of learners: adapt to a support set, then predict queries.

  A subclass is a frozen dataclass with the field `model`, or sets it. Examples
  are `sampling.Examples`; an episode has examples `support` and `query`.

  A prediction (`predict`) is a function of the parameters, the support set and
  its own example, for every network: `models.Model.alone`. A training loss may
  use a network that mixes the examples of a task.

  A class that is registered in `options.LEARNERS` says what the documentation
  tells of it, and which options it reads (`settings`).

  Attributes:
    paper: authors and place.
    adapted: the parameters that a support set adapts, in words.
    releases: the vector of a task that is clipped and noised, in words; empty
      if it is not meta-trained.
    model: the network.
    adapts: whether it reads a support set; false without tasks.
    order: of the gradient through the inner steps, or None.
    inner_steps: gradient steps on a support set; None for a closed form.
    loss_weights: of the query losses after each inner step, or None.
    task_loss: (outputs, labels) -> scalar, the mean over the examples:
      `cross_entropy` for classes, `squared_error` for regression.
  """

  paper: str = ""
  adapted: str = ""
  releases: str = "the gradient of the query loss"
  model: model_lib.Model
  adapts: bool = True
  order: Order | None = None
  inner_steps: int | None = None
  loss_weights: Any = None
  task_loss: TaskLoss = staticmethod(cross_entropy)

  def __post_init__(self) -> None:
    """Raise RunError for a network that is no `models.Model`."""
    model_lib.check_model(self.model)

  @classmethod
  def of_options(
      cls, model: model_lib.Model, chosen: options.LearnerOptions, way: int
  ) -> Self:
    """Build the learner with those of its `settings` that are its fields.

    Args:
      model: the network.
      chosen: the options of a run.
      way: classes of a task; 1 is regression with squared error.

    Raises:
      PlanError: a setting is out of range.
    """
    make: Any = cls
    known = inspect.signature(make).parameters
    settings = cls.settings(chosen, way)
    return make(model, **{k: v for k, v in settings.items() if k in known})

  @classmethod
  def settings(cls, chosen: options.LearnerOptions, way: int) -> dict[str, Any]:
    """Return the options by the names of fields; see `of_options`."""
    found = vars(chosen) | {"way": way}
    if way == 1:
      found["task_loss"] = squared_error
    return found

  @property
  def example_gradients(self) -> bool:
    """Return whether an update is a mean of single examples' gradients.

    These are gradients of `adapted_loss` at the adapted parameters, where the
    support set is read through `inner_gradient` alone. Sample-level training
    needs this. False for a closed form, second order and a separate
    `meta_gradient`.
    """
    return (
        self.order == "first"
        and self.inner_steps is not None
        and type(self).meta_gradient is Learner.meta_gradient
    )

  def init(self, key: jax.Array) -> Params:
    """Return the initial parameters of the model."""
    return self.model.init(key)

  @abc.abstractmethod
  def adapt(
      self,
      params: Params,
      support: episodes.Examples,
      *,
      inner_gradient: InnerGradient = jax.grad,
  ) -> Params:
    """Adapt to the support set, for `logits`.

    Args:
      params: the meta-parameters.
      support: examples.
      inner_gradient: maps a loss (params, examples, step) -> scalar to its
        gradient (params, examples, step) -> like params, for the parameters
        that adapt. It is called once in each inner step, with the step's number
        from 0, which selects the noise. A closed form does not call it.
    """

  def logits(self, adapted: Params, images: jax.Array) -> jax.Array:
    """Compute logits [n, way] of images [n, H, W, C], after adaptation."""
    return self.model.apply(adapted, images)

  def adapted_loss(
      self, adapted: Params, examples: episodes.Examples
  ) -> jax.Array:
    """Compute the mean loss of examples after adaptation, a scalar."""
    if examples.mask is None:
      return self.task_loss(
          self.logits(adapted, examples.images), examples.labels
      )
    # Only prediction fills up support sets.
    weights = examples.mask.astype(jnp.float32)
    seen = self.model.seen(adapted, examples.images, weights)
    learner = self._of_model(lambda model: model.alone(seen))
    outputs = learner.logits(adapted, examples.images)
    losses = jax.vmap(
        lambda output, label: self.task_loss(output[None], label[None])
    )(outputs, examples.labels)
    return weights @ losses / weights.sum()

  def predict(
      self,
      params: Params,
      support: episodes.Examples | None,
      query_images: jax.Array,
  ) -> jax.Array:
    """Compute logits [n, way] of query images, adapted to the support.

    The logits of an image depend on the parameters, the support set and this
    image only.
    """
    learner = self.normalised(self.public_moments(params))
    return learner.answer(learner.prepare(params, support), query_images)

  def prepare(self, params: Params, support: Any) -> Prepared:
    """Adapt to the support set, for `answer`."""
    adapted = self.adapt(params, support)
    if support is None:
      return Prepared(adapted, None)
    return Prepared(adapted, self.seen(adapted, support))

  def seen(
      self, adapted: Params, support: episodes.Examples
  ) -> model_lib.Moments | jax.Array | None:
    """Return what predictions take of a support set; see `models.Model.seen`.

    Args:
      adapted: the parameters of the learner, adapted or not.
      support: examples; those that its mask leaves out do not count.
    """
    weights = None
    if support.mask is not None:
      weights = support.mask.astype(jnp.float32)
    network = self.network_params(adapted)
    return self.model.seen(network, support.images, weights)

  def answer(self, prepared: Prepared, images: jax.Array) -> jax.Array:
    """Compute logits [n, way] of images, each by itself."""
    learner = self._of_model(lambda model: model.alone(prepared.seen))
    return learner.logits(prepared.adapted, images)

  def public_moments(self, params: Params) -> model_lib.Moments | None:
    """Return the moments of the network's public examples, None without any.

    They are a function of the parameters and of public examples, so they cost
    no privacy.
    """
    return self.model.public_moments(self.network_params(params))

  def normalised(self, given: model_lib.Moments | None) -> Self:
    """Return the learner with given moments of `public_moments`, or itself."""
    if given is None:
      return self
    return self._of_model(lambda model: model.normalised(given))

  def loss(
      self, params: Params, episode: episodes.EpisodeBatch
  ) -> jax.Array:
    """Compute the query loss after adapting to the support set."""
    return self.adapted_loss(
        self.adapt(params, episode.support), episode.query
    )

  def meta_gradient(
      self, params: Params, episode: episodes.EpisodeBatch
  ) -> tuple[jax.Array, Params]:
    """Return (`loss`, its gradient).

    A learner may return another direction to descend, as Reptile does. Any
    function of one task and the parameters is sound, since it is clipped; a
    function of several tasks is not.
    """
    return jax.value_and_grad(self.loss)(params, episode)

  def at_step(self, step: jax.Array) -> "Learner":
    """Return the learner of one outer step, whose number is public.

    Most learners are the same in all steps.
    """
    return self

  def at_task(self, key: jax.Array) -> Self:
    """Return the learner for training on one task, with random layers.

    The layers take their random numbers from the task's key. Without random
    layers (`model.random` is None) it is this learner. `predict` and evaluation
    use no random layers.
    """
    return self._of_model(lambda model: model.with_key(key))

  def in_pass(self, i: jax.Array | int) -> Self:
    """Return the learner of pass i over a support set, with new random numbers.

    The pass over the query set is not numbered.
    """
    return self._of_model(lambda model: model.in_pass(i))

  def on_features(self) -> Self | None:
    """Return the learner that takes outputs of its network as examples.

    None for a learner whose network adapts, so that an image has other outputs
    in every task.
    """
    return None

  def network_params(self, params: Params) -> Params:
    """Return the network's parameters in those of the learner, or adapted."""
    return params

  def _of_model(
      self, change: Callable[[model_lib.Model], model_lib.Model]
  ) -> Self:
    """Return the learner of a changed network; itself if nothing changes."""
    before = self.model  # It may be made anew on every access.
    model = change(before)
    if model is before:
      return self
    result = copy.copy(self)
    object.__setattr__(result, "model", model)  # The dataclass is frozen.
    return result


@dataclasses.dataclass(frozen=True)
class TaskLearner(Learner):
  """The fields of every learner that adapts to tasks.

  Attributes:
    model: the network.
    task_loss: see `Learner`.
  """

  model: model_lib.Model
  _: dataclasses.KW_ONLY
  task_loss: TaskLoss = cross_entropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepLearner(TaskLearner):
  """The fields of learners that adapt by gradient steps of one rate.

  Attributes:
    model: the network.
    inner_steps: gradient steps of a task, at least 1.
    inner_rate: their learning rate, positive.
    task_loss: see `Learner`.
  """

  inner_steps: int = 5
  inner_rate: float = 0.1

  def __post_init__(self) -> None:
    super().__post_init__()
    _validate.count("inner_steps", self.inner_steps, 1)
    _validate.positive("inner_rate", self.inner_rate)

  def descend(
      self,
      gradient: Callable[..., Params],
      params: Params,
      examples: episodes.Examples,
      *,
      rates: Callable[[jax.Array | int], Params] | None = None,
      visit: Callable[[Params, jax.Array | int], jax.Array] | None = None,
  ) -> tuple[Params, jax.Array | None]:
    """Take the inner steps: params <- params - rate * gradient.

    With order "first" the gradients are constants when this is differentiated.

    Args:
      gradient: (params, examples, step) -> like params.
      params: initial parameters; entries that are None are left out.
      examples: passed to the gradient.
      rates: step -> tree like params of rates (scalars, or arrays like the
        parameters); None for `inner_rate`.
      visit: (params, step) -> scalar, called after every step.

    Returns:
      The parameters after the last step, and the values of `visit`, [steps].
    """

    def take(params: Params, i: jax.Array) -> tuple[Params, jax.Array | None]:
      slope = gradient(params, examples, i)
      if self.order == "first":
        slope = lax.stop_gradient(slope)
      if rates is None:
        params = jax.tree.map(
            lambda p, g: p - self.inner_rate * g, params, slope
        )
      else:
        params = jax.tree.map(
            lambda p, g, r: p - r * g, params, slope, rates(i)
        )
      if visit is None:
        return params, None
      return params, visit(params, i)

    # A loop compiles its step once; a single step needs none.
    unroll = self.inner_steps == 1 or not backends.choices().loops
    return lax.scan(take, params, jnp.arange(self.inner_steps), unroll=unroll)


@dataclasses.dataclass(frozen=True)
class Supervised(Learner):
  """A network that is trained without tasks, by cross entropy of its logits.

  With a plan that has no episode every example is a clip unit, and the private
  step is DP-SGD: Abadi et al., "Deep Learning with Differential Privacy"
  (2016), Algorithm 1, and Algorithm 1 of Sharma, "Differential Privacy &
  Approximate Bayesian Inference". Its result can start `FineTuning`.

  Attributes:
    model: the network, with a logit for every training class.
  """

  model: model_lib.Model

  paper = "Abadi et al., CCS 2016"
  adapted = "nothing"
  releases = "the gradient of the loss of one example"
  adapts = False

  def adapt(
      self,
      params: Params,
      support: episodes.Examples | None,
      *,
      inner_gradient: InnerGradient = jax.grad,
  ) -> Params:
    """Return the parameters unchanged."""
    return params

"""A network as a pair of pure functions, its checks, and its augmentation.

Augmentation is a random first layer of a network. It changes every example anew
while a task is trained on, and at no other time: validation, test and exported
models see the images unchanged. It happens inside a task, before the task's
gradient is clipped, so it costs no privacy. Gradients of several augmentations
of one task can be averaged there too (De et al., "Unlocking High-Accuracy
Differentially Private Image Classification through Scale", 2022, section 3:
augmentation multiplicity).
"""

from collections.abc import Callable
import sys
from typing import Any, NamedTuple, TYPE_CHECKING

from flax import linen as nn
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp import backends
from episodic_dp import options
from episodic_dp.errors import RunError
from episodic_dp.errors import UnsoundPlanError

if TYPE_CHECKING:  # They take half a second to import, and few use them.
  from flax import nnx
  import haiku as hk

Params = Any
Apply = Callable[[Params, jax.Array], jax.Array]
Random = Callable[[Params, jax.Array, jax.Array], jax.Array]
Moments = Any  # A tree of arrays; see `Model.moments`.
OWN = 0.1
"""Share of an example's own moments, with those of public examples."""
_EXAMPLES = 3
_WEIGHTS = 2  # Number of random weights to test.


class Model(NamedTuple):
  """A network without state.

  Attributes:
    init: key -> params.
    apply: (params, examples float32 [n, ...]) -> logits float32 [n, way]; pure,
      so that equal examples have equal logits.
    mixes_examples: whether one example's logits may depend on the others, as
      with batch normalisation. It is sound if whole tasks are clipped, and
      refused if single examples are.
    input_shape: shape of one example, (H, W, C), (time, channels) or
      (features,); None if unknown.
    way: number of outputs (logits, or features of a network without a head);
      None if unknown.
    random: (params, examples, key) -> logits, used in training instead of
      `apply` by a network with random layers such as dropout; None without
      them.
    key: the random layers' key while they are in use (`with_key`), else None.
    multiplicity: number of repetitions of a task with new random numbers in a
      step; their gradients are averaged before they are clipped.
    whole: params -> the parameters of the whole network, if some are frozen
      (`parts.start_from`); None if params are all of them.
    start: digest of the initial weights, None if they are random; a run's
      privacy statement contains it.
    backbone: digest of the public network that made its examples, features;
      None without any. A run's privacy statement contains it.
    moments: (params, examples, weights float32[n] or None) -> mean and variance
      of the examples before every batch normalisation; None for a network
      without any, or one that does not tell.
    by_moments: (params, examples, moments, own) -> logits, each example by the
      given moments and, with the share `own`, by its own; None like `moments`.
    public: float32[k, ...], public examples whose moments normalise all others
      (`normalised`); None if there are none.
    mirror: whether images were mirrored in training; see `views`.
  """

  init: Callable[[jax.Array], Params]
  apply: Apply
  mixes_examples: bool = True
  input_shape: tuple[int, ...] | None = None
  way: int | None = None
  random: Random | None = None
  key: jax.Array | None = None
  multiplicity: int = 1
  whole: Callable[[Params], Params] | None = None
  start: str | None = None
  backbone: str | None = None
  moments: Callable[[Params, jax.Array, Any], Moments] | None = None
  by_moments: Callable[[Params, jax.Array, Moments, float], Any] | None = None
  public: np.ndarray | None = None
  mirror: bool = False

  @property
  def shapes(self) -> Params:
    """Return the shapes and dtypes of the parameters."""
    return jax.eval_shape(self.init, jax.random.key(0))

  def with_key(self, key: jax.Array) -> "Model":
    """Return the network with random layers that use a key."""
    random = self.random
    if random is None:
      return self
    own = jax.random.fold_in(key, 0)
    return self._replace(
        apply=lambda params, examples: random(params, examples, own), key=key
    )

  def in_pass(self, i: jax.Array | int) -> "Model":
    """Return the network of pass i = 0, 1, .. over a task."""
    if self.key is None:
      return self
    return self.with_key(jax.random.fold_in(self.key, i + 1))

  def public_moments(self, params: Params) -> Moments | None:
    """Return the moments of the public examples at these parameters, if any."""
    if self.public is None or self.moments is None:
      return None
    # The barrier keeps XLA from computing with the examples while compiling.
    examples = lax.optimization_barrier(jnp.asarray(self.public))
    return self.moments(params, examples, None)

  def normalised(self, given: Moments) -> "Model":
    """Return the network with given moments, a function of one example.

    The output for an image is the mean over its `views`.
    """
    single = self._by(given, OWN)

    def apply(params: Params, examples: jax.Array) -> jax.Array:
      if examples.ndim != 4:
        return single.apply(params, examples)
      seen = jnp.concatenate(views(examples, self.mirror))
      both = single.apply(params, seen)
      return both.reshape(2, len(examples), -1).mean(0)

    return single._replace(apply=apply)

  def seen(
      self, params: Params, support: jax.Array, weights: jax.Array | None
  ) -> Moments | jax.Array | None:
    """Return what `alone` takes of a support set, None for nothing.

    Args:
      params: the adapted parameters.
      support: examples [n, ...].
      weights: float32[n] or None; 0 leaves an example out.
    """
    if not self.mixes_examples:
      return None
    if self.moments is None:
      return support
    return self.moments(params, support, weights)

  def alone(self, seen: Moments | jax.Array | None) -> "Model":
    """Return the network that predicts each example by itself.

    Batch normalisation takes the moments of the support set. A network of own
    code that mixes examples is evaluated on the support set and one example.

    Args:
      seen: of the support set, from the method `seen`.
    """
    if seen is None:
      return self
    if self.moments is not None:
      return self._by(seen, 0.0)

    def apply(params: Params, examples: jax.Array) -> jax.Array:
      def one(example: jax.Array) -> jax.Array:
        together = jnp.concatenate([seen, example[None]])
        return self.apply(params, together)[-1]

      return lax.map(one, examples)

    return self._replace(apply=apply, mixes_examples=False)

  def _by(self, given: Moments, own: float) -> "Model":
    by_moments = self.by_moments
    assert by_moments is not None  # Like `moments`.
    return self._replace(
        apply=lambda params, examples: by_moments(params, examples, given, own),
        mixes_examples=False, moments=None, by_moments=None, public=None,
    )


def views(images: jax.Array, mirror: bool) -> tuple[jax.Array, jax.Array]:
  """Move images by a pixel: down and right, and up and left.

  The edges are repeated. A network that pools sees other windows.

  Args:
    images: [n, H, W, C].
    mirror: whether the second view is mirrored left to right.
  """
  edge = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
  second = edge[:, 2:, 2:]
  if mirror:
    second = second[:, :, ::-1]
  return edge[:, :-2, :-2], second


def check_model(model: object) -> None:
  """Raise RunError, with the line to type, for anything but a `Model`."""
  if not isinstance(model, Model):
    line = _line(model)
    raise RunError(
        f"the network is {type(model).__name__} and must be a Model: give"
        f" models.{line}"
    )


def _line(network: object) -> str:
  """Return the line that makes a Model of a network of a library."""
  if isinstance(network, nn.Module):
    return "from_flax(module, input_shape)"
  # A network of a library that is not loaded does not exist.
  nnx, hk = sys.modules.get("flax.nnx"), sys.modules.get("haiku")
  if hk is not None:
    if isinstance(network, hk.Transformed):
      return "from_haiku(transformed, input_shape)"
    if isinstance(network, hk.TransformedWithState):
      return "from_haiku(hk.transform(f), input_shape)"
  if isinstance(network, type) or (
      nnx is not None and isinstance(network, nnx.Module)
  ):
    return "from_nnx(build, input_shape), build(rngs)"
  return "Model(init, apply)"


def mixes_examples(
    apply: Apply,
    params: Params,
    input_shape: tuple[int, ...],
) -> bool:
  """Return whether changing one example changes the output of another.

  Each of three random examples in turn is replaced by another one, by one a
  thousand times as large, and by NaN, which passes through any arithmetic. The
  outputs of the others must keep their bits. The weights are random, since a
  head of zeros would hide everything before it. A network passes if no trial
  shows a change. A network whose outputs are never finite does not pass.

  Args:
    apply: (params, images float32 [n, H, W, C]) -> [n, outputs].
    params: a tree of arrays or of their shapes.
    input_shape: (H, W, C).
  """
  apply = jax.jit(apply)
  rng = np.random.default_rng(0)
  for _ in range(_WEIGHTS):
    weights = jax.tree.map(
        lambda p: jnp.asarray(rng.standard_normal(p.shape), p.dtype), params
    )
    images = rng.random((_EXAMPLES, *input_shape), np.float32)
    before = np.asarray(apply(weights, images))
    for i in range(_EXAMPLES):
      others = np.arange(_EXAMPLES) != i
      another = rng.random(input_shape, np.float32)
      for change in (another, 1e3 * another, np.float32(np.nan)):
        changed = images.copy()
        changed[i] = change
        after = np.asarray(apply(weights, changed))
        # NaN differs from itself, so outputs that are never finite fail here.
        if not np.array_equal(before[others], after[others]):
          return True
  return False


def mixes(model: Model, input_shape: tuple[int, ...]) -> bool:
  """Return whether a test shows that examples change each other's outputs.

  The network is tested by `mixes_examples` in training and in evaluation; its
  declared property is not used.
  """
  trained = model.with_key(jax.random.key(0))
  return any(
      mixes_examples(apply, model.shapes, input_shape)
      for apply in dict.fromkeys((model.apply, trained.apply))
  )


def checked(model: Model, input_shape: tuple[int, ...]) -> Model:
  """Return the Model with its shapes, after checking its outputs and claim.

  Args:
    model: `init` and `apply` of a library's network.
    input_shape: shape of one example.

  Raises:
    RunError: logits that are not [n, way], or mixes_examples=False for a
      network that mixes them.
  """
  model = model._replace(init=backends.jit_init(model.init))
  examples = jax.ShapeDtypeStruct((2, *input_shape), jnp.float32)
  logits = jax.eval_shape(model.apply, model.shapes, examples)
  if getattr(logits, "ndim", 0) != 2 or logits.shape[0] != 2:
    raise RunError(
        f"the model maps examples {examples.shape} to"
        f" {getattr(logits, 'shape', type(logits).__name__)}: it must return"
        " logits [n, way]"
    )
  if not model.mixes_examples and mixes(model, tuple(input_shape)):
    raise RunError(
        "mixes_examples=False, but changing one example changes the logits of"
        " another: remove the layer that mixes them, or set"
        " mixes_examples=True"
    )
  return model._replace(input_shape=tuple(input_shape), way=logits.shape[1])


# Modules of libraries ---------------------------------------------------------


def from_flax(
    module: nn.Module,
    input_shape: tuple[int, ...],
    *,
    mixes_examples: bool = True,
) -> Model:
  """Return a Flax Linen module as a Model.

  For a module with random layers, set `Model._replace(random=...)`, which
  training then uses.

  Args:
    module: examples [n, ...] -> logits [n, way]; its only collection of
      variables must be "params".
    input_shape: shape of one example, (H, W, C), (time, channels) or
      (features,).
    mixes_examples: whether one example's logits may depend on the others; False
      is tested on random weights.

  Returns:
    The network, `Model`.

  Raises:
    plan.UnsoundPlanError: the module carries statistics or other state from
      call to call (for example "batch_stats").
    RunError: mixes_examples=False is wrong, or the logits are not [n, way].
      Flax's own error is raised if the module needs random numbers.
  """

  def init(key):
    return module.init(key, jnp.zeros((1, *input_shape)))

  def apply(params, examples):
    return module.apply({"params": params}, examples)

  collections = set(jax.eval_shape(init, jax.random.key(0))) - {"params"}
  if collections:
    raise _carried(type(module).__name__, f"collections {sorted(collections)}")
  model = Model(
      lambda key: init(key).get("params", {}), apply, mixes_examples
  )
  return checked(model, input_shape)


def from_nnx(
    build: "Callable[[nnx.Rngs], nnx.Module]",
    input_shape: tuple[int, ...],
    *,
    mixes_examples: bool = True,
) -> Model:
  """Return a Flax NNX module as a Model.

  Args:
    build: rngs -> the module; its variables must be `nnx.Param`.
    input_shape: as in `from_flax`.
    mixes_examples: as in `from_flax`.

  Raises:
    plan.UnsoundPlanError: the module has other variables (running statistics,
      or the random state of dropout).
    RunError: as in `from_flax`.
  """
  from flax import nnx  # Lazy import: see above.

  module = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
  graph, *states = nnx.split(module, nnx.Param, ...)
  shapes, rest = states
  if others := sorted({type(v).__name__ for _, v in nnx.to_flat_state(rest)}):
    raise _carried(type(module).__name__, f"variables {others}")

  def init(key):
    return nnx.to_pure_dict(nnx.state(build(nnx.Rngs(key)), nnx.Param))

  def apply(params, examples):
    state = jax.tree.map(lambda shape: shape, shapes)  # A copy to write to.
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graph, state)(examples)

  return checked(Model(init, apply, mixes_examples), input_shape)


def from_haiku(
    transformed: "hk.Transformed",
    input_shape: tuple[int, ...],
    *,
    mixes_examples: bool = True,
) -> Model:
  """Return a transformed Haiku function as a Model.

  Args:
    transformed: from `hk.transform`.
    input_shape: as in `from_flax`.
    mixes_examples: as in `from_flax`.

  Raises:
    plan.UnsoundPlanError: it is from `hk.transform_with_state`.
    RunError: as in `from_flax`.
  """
  import haiku as hk  # Lazy import: see above.

  if isinstance(transformed, hk.TransformedWithState):
    raise _carried("the Haiku function", "state (hk.transform_with_state)")
  model = Model(
      lambda key: transformed.init(key, jnp.zeros((1, *input_shape))),
      lambda params, examples: transformed.apply(params, None, examples),
      mixes_examples,
  )
  return checked(model, input_shape)


def _carried(who: str, what: str) -> UnsoundPlanError:
  return UnsoundPlanError(
      f"{who} has {what}: statistics carried from task to task leave without"
      " clipping; use the current batch's statistics"
      " (networks.batch_norm, norm='batch'), or networks.group_norm"
      " (norm='group')"
  )


# Augmentation -----------------------------------------------------------------


def augmented(
    model: Model, augmentation: options.Augmentation
) -> Model:
  """Return the network with augmented images in training.

  Args:
    model: network for images [n, H, W, C].
    augmentation: the random changes; without any, the network is returned.

  Raises:
    RunError: its examples are not images.
  """
  if not augmentation.flip:
    return model
  shape = model.input_shape
  if shape is not None and len(shape) != 3:
    raise RunError(
        f"augmentation mirrors images, but an example has the shape"
        f" {shape}: leave it out"
    )

  def random(
      params: Params, images: jax.Array, key: jax.Array
  ) -> jax.Array:
    own, inner = jax.random.fold_in(key, 0), jax.random.fold_in(key, 1)
    mirrored = jax.random.bernoulli(own, shape=(len(images), 1, 1, 1))
    images = jnp.where(mirrored, images[:, :, ::-1], images)
    if model.random is None:
      return model.apply(params, images)
    return model.random(params, images, inner)

  return model._replace(
      random=random, multiplicity=augmentation.multiplicity, mirror=True
  )

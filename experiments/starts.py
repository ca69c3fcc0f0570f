"""Make a public start that the library ships, from generated data alone.

  python -m experiments.starts --start=glyphs
  python -m experiments.starts --start=scenes

A start is a Conv4 of width 32 without a head, trained as a prototypical network
on generated classes. The classes of `glyphs`, for grey images, are characters
of random strokes, each by a different hand (`data.glyphs.characters`). Those of
`scenes`, for colour, are laws of random scenes (`data.scenes.scenes`). No real
image is used, so a start is public whatever the private data are. The seed is
fixed: the same platform makes the same bits, of `glyphs` in fifteen minutes of
one core and of `scenes` in twelve.

`glyphs` was chosen from two generators of strokes, at one setting each, by
validation classes of Omniglot and validation writers of MNIST. Its steps and
the share of an image's own moments were chosen by the same, from three
trainings. The generator of `scenes` was chosen from 9, in 11 trainings, by
validation classes of CIFAR-FS; the loss and the length of training from three
more.
"""

from collections.abc import Callable, Sequence
from typing import Any

from absl import flags
import jax
import jax.numpy as jnp
import optax

from episodic_dp import models
from episodic_dp import options
from episodic_dp.cli import app
from episodic_dp.data import glyphs
from episodic_dp.data import scenes
from episodic_dp.models import model as model_lib
from episodic_dp.models import networks
from episodic_dp.models import parts
from episodic_dp.output import phases

_WAY = 10
_RATE = 2e-3
_SCALE = 1 / options.START_WIDTH


def _first_supports(features: jax.Array) -> jax.Array:
  """Return the loss of a task whose support is the first image of each class.

  Args:
    features: float32[way, n, d], the embeddings of its images.
  """
  support, queries = features[:, 0], features[:, 1:]
  away = jnp.square(queries[:, :, None] - support).sum(-1)
  found = jax.nn.log_softmax(-_SCALE * away)
  classes = jnp.arange(len(features))
  return -found[classes, :, classes].mean()


def _unit(x: jax.Array) -> jax.Array:
  # Not `networks.unit`: the bits of the shipped file follow from this rounding.
  return x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-6)


def _directions(features: jax.Array) -> jax.Array:
  """Return the loss of a task where every image takes its turn as support.

  Cosines of centred features are compared. Each image is judged by each one of
  the other images of the classes, and by the means of all others.

  Args:
    features: float32[way, n, d], the embeddings of its images.
  """
  way, n, _ = features.shape
  x = _unit(features - features.mean((0, 1), keepdims=True))
  others = _unit((x.sum(1, keepdims=True) - x) / (n - 1))
  # What an image [class, number] is compared with, [class, n + 1]: the images
  # of a class, and the mean of those of another number.
  alone = jnp.einsum("aid,bjd->aibj", x, x)
  together = jnp.einsum("aid,bid->aib", x, others)
  cosines = jnp.concatenate([alone, together[..., None]], 3)
  classes = jnp.arange(way)
  found = jax.nn.log_softmax(networks.TEMPERATURE * cosines, 2)
  # An image does not judge itself.
  share = jnp.append((1 - jnp.eye(n)) / (n - 1), jnp.ones((n, 1)), 1)
  return -(found[classes, :, classes] * share).sum(-1).mean() / 2


# Arguments of `train`.
_RECIPES: dict[str, Any] = {
    "glyphs": dict(
        draw=glyphs.characters, shape=(28, 28, 1), loss=_first_supports,
        classes=4 * _WAY, images=3, steps=9000, own=model_lib.OWN,
    ),
    "scenes": dict(
        draw=scenes.scenes, shape=(32, 32, 3), loss=_directions,
        classes=4 * _WAY, images=5, steps=4000, own=0.0,
    ),
}
_START = flags.DEFINE_enum("start", "glyphs", _RECIPES, "Start to make.")
_OUT = flags.DEFINE_string("out", None, "File; by default the package's own.")


def train(
    draw: Callable[[jax.Array, int, int], jax.Array],
    shape: tuple[int, int, int],
    loss: Callable[[jax.Array], jax.Array],
    classes: int,
    images: int,
    steps: int,
    own: float,
) -> Any:
  """Train a prototypical network on generated tasks; return its weights.

  Args:
    draw: key, classes and images of each -> uint8[classes, images, *shape].
    shape: of an image.
    loss: embeddings of a task -> its loss.
    classes: of a step.
    images: of each class.
    steps: of Adam, whose rate falls to zero as a cosine.
    own: share of an image's own moments, as in prediction; 0 for those of the
      step's images alone.
  """
  network = networks.Conv4(way=None, width=options.START_WIDTH)
  optimizer = optax.adam(optax.cosine_decay_schedule(_RATE, steps))
  params = network.init(jax.random.key(0), jnp.zeros((1, *shape)))["params"]

  def mean_loss(params: Any, drawn: jax.Array) -> jax.Array:
    # The images of the step are the public examples of `models.Model`.
    features, _ = network.apply(
        {"params": params}, drawn.reshape(-1, *shape), own=own,
        mutable=[networks.MOMENTS] if own else [],
    )
    tasks = features.reshape(-1, _WAY, images, features.shape[-1])
    return jax.vmap(loss)(tasks).mean()

  @jax.jit
  def step(params: Any, state: Any, number: jax.Array) -> Any:
    key = jax.random.fold_in(jax.random.key(1), number)
    drawn = draw(key, classes, images) / 255.0
    slope = jax.grad(mean_loss)(params, drawn)
    updates, state = optimizer.update(slope, state, params)
    return optax.apply_updates(params, updates), state

  state = optimizer.init(params)
  with phases.progress(steps, "step") as bar:
    for number in range(steps):
      params, state = step(params, state, number)
      bar.update()
  return params


def main(_: Sequence[str]) -> None:
  """Train the start and write it to the package."""
  models.write_weights(
      _OUT.value or parts.shipped(_START.value), train(**_RECIPES[_START.value])
  )


if __name__ == "__main__":
  app.run(main)

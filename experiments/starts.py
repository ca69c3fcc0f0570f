"""Make the public start that the library ships, from generated data alone.

  python -m experiments.starts

The start `glyphs` is a Conv4 of width 32 without a head, for grey images. It is
trained as a prototypical network on characters of random strokes
(`data.glyphs.characters`), each by a different hand. No real image is used, so
it is public whatever the private data are. The seed is fixed: the same platform
makes the same bits, in four minutes of one core.

It was chosen from two generators of strokes, at one setting each, by validation
classes of Omniglot and validation writers of MNIST.
"""

from collections.abc import Sequence
from typing import Any

from absl import flags
import jax
import jax.numpy as jnp
import optax

from episodic_dp import learners
from episodic_dp import models
from episodic_dp.cli import app
from episodic_dp.data import glyphs
from episodic_dp.models import parts
from episodic_dp.output import phases
from episodic_dp.sampling import episodes

WIDTH = 32
_WAY, _SHOT, _QUERY = 10, 1, 2
_TASKS = 4  # In a step.
_RATE = 2e-3

_STEPS = flags.DEFINE_integer("steps", 4000, "Steps of training.", 1)
_OUT = flags.DEFINE_string("out", None, "File; by default the package's own.")
_SHAPE = (28, 28, 1)


def train(steps: int) -> Any:
  """Train a prototypical network on generated tasks; return its weights.

  Args:
    steps: number of steps of Adam, whose rate falls to zero as a cosine.
  """
  network = models.conv4(way=None, width=WIDTH, input_shape=_SHAPE)
  learner = learners.ProtoNet(network, way=_WAY, scale=1 / WIDTH)
  optimizer = optax.adam(optax.cosine_decay_schedule(_RATE, steps))
  params = learner.init(jax.random.key(0))
  labels = jnp.arange(_WAY)

  def loss(params: Any, images: jax.Array) -> jax.Array:
    both = jnp.split(images, [_SHOT], axis=1)
    task = episodes.EpisodeBatch(*(_examples(part, labels) for part in both))
    return learner.loss(params, task)

  @jax.jit
  def step(params: Any, state: Any, number: jax.Array) -> Any:
    key = jax.random.fold_in(jax.random.key(1), number)
    images = glyphs.characters(key, _TASKS * _WAY, _SHOT + _QUERY) / 255.0
    tasks = images.reshape(_TASKS, _WAY, _SHOT + _QUERY, *_SHAPE)

    def mean(params: Any) -> jax.Array:
      return jax.vmap(loss, (None, 0))(params, tasks).mean()

    updates, state = optimizer.update(jax.grad(mean)(params), state, params)
    return optax.apply_updates(params, updates), state

  state = optimizer.init(params)
  with phases.progress(steps, "step") as bar:
    for number in range(steps):
      params, state = step(params, state, number)
      bar.update()
  return params


def _examples(images: jax.Array, labels: jax.Array) -> episodes.Examples:
  """Return images [way, n, ...] as the examples of a task."""
  way, n, *shape = images.shape
  return episodes.Examples(
      images.reshape(way * n, *shape), jnp.repeat(labels, n)
  )


def main(argv: Sequence[str]) -> None:
  """Train the start and write it to the package."""
  del argv
  (name,) = parts.SHIPPED
  models.write_weights(_OUT.value or parts.shipped(name), train(_STEPS.value))


if __name__ == "__main__":
  app.run(main)

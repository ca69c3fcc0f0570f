"""What clipping and noise add to a step; prints JSON.

  python -m experiments.benchmarks.overhead --out=overhead.json

Steps of 5-way 1-shot tasks with Conv4, second order, as a user runs them
(`private.make_meta_step`). With 1 inner step and 1 query per class a task costs
as little as it can, so that what privacy adds shows most:

  private  each task's gradient clipped, noise added
  none     the same with clip_norm = infinity and noise_multiplier = 0
  plain    written by hand: the gradient of a chunk's summed loss, no task's
           apart, from the same sampling (Conv4-16 alone)

and the parts by themselves: `clip`, a chunk of gradients of the network's size,
and `noise`, one draw of that size, each of which also as a share of the step.
"""

import functools
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
import optax

from episodic_dp import private
from episodic_dp import sampling
from experiments.benchmarks import harness
from experiments.benchmarks import settings

WIDTHS, TASKS, CHUNK = (64, 16), 16, 4


def plain_step(run: settings.Run):
  """The step of a loop that knows nothing of privacy."""
  images = jnp.asarray(run.dataset.images)
  hierarchy, plan = run.dataset.hierarchy, run.plan

  def one_task(params, key, task_images):
    task = sampling.make_episode(key, task_images, plan.episode)
    return run.learner.loss(params, task)

  @functools.partial(jax.jit, donate_argnums=0)
  def update(state, images):
    key = jax.random.fold_in(state.key, state.step)
    drawn = sampling.sample(key, hierarchy, plan, state.step)
    rows, _ = sampling.task_indices(*drawn, plan)
    keys = jax.random.split(key, rows.shape[0])

    def loss(params, some, keys):
      tasks = jax.vmap(one_task, (None, 0, 0))(params, keys, images[some])
      return tasks.sum()

    def add(total, part):
      gradient = jax.grad(loss)(state.params, *part)
      return jax.tree.map(jnp.add, total, gradient), None

    parts = jax.tree.map(
        lambda a: a.reshape(-1, CHUNK, *a.shape[1:]), (rows, keys)
    )
    zeros = jax.tree.map(jnp.zeros_like, state.params)
    total, _ = lax.scan(add, zeros, parts)
    mean = jax.tree.map(lambda g: g / rows.shape[0], total)
    updates, opt_state = run.optimizer.update(
        mean, state.opt_state, state.params
    )
    params = optax.apply_updates(state.params, updates)
    return state._replace(
        params=params, opt_state=opt_state, step=state.step + 1
    ), {}

  return lambda state: update(state, images)


def parts(params: Any) -> dict[str, Any]:
  """Clipping a chunk and drawing the noise, compiled by themselves."""
  gradients = jax.tree.map(
      lambda p: jnp.ones((CHUNK, *p.shape), jnp.float32), params
  )
  zeros = jax.tree.map(jnp.zeros_like, params)

  @jax.jit
  def clip(gradients):
    clipped = jax.vmap(lambda g: private.clip(g, 1.0).gradient)(gradients)
    return jax.tree.map(lambda g: g.sum(0), clipped)

  noise = jax.jit(lambda key: private.add_noise(key, zeros, 1.0))
  key = jax.random.key(1)
  return {
      "clip": functools.partial(harness.timed, clip, gradients),
      "noise": functools.partial(harness.timed, noise, key),
  }


def measure_width(
    width: int, tasks: int, options: harness.Options
) -> dict[str, Any]:
  """One width of the network: its cases and their ratios."""
  make = functools.partial(
      settings.omniglot,
      inner_steps=1,
      query=1,
      width=width,
      tasks=tasks,
      smoke=options.smoke,
  )
  run = make()
  without = make(clip_norm=float("inf"), noise_multiplier=0.0)
  stepping = {
      "private": run.step(microbatch_size=CHUNK),
      "none": without.step(microbatch_size=CHUNK),
  }
  if width == WIDTHS[-1]:  # Not in all: compiling is what takes the time.
    stepping["plain"] = plain_step(run)
  cases = {
      name: functools.partial(harness.timed, harness.steps(step, run.init()))
      for name, step in stepping.items()
  }
  params = run.init().params
  turns = harness.interleaved(cases | parts(params), options.repeats)
  return {
      "weights": sum(p.size for p in jax.tree.leaves(params)),
      "cases": {
          name: harness.summary(found) for name, found in turns.items()
      },
      **{
          f"private_to_{other}": harness.ratio(turns["private"], turns[other])
          for other in stepping
          if other != "private"
      },
      # Every chunk is clipped, the noise is drawn once.
      "clip_share": harness.ratio(
          turns["clip"], turns["private"], scale=tasks / CHUNK
      ),
      "noise_share": harness.ratio(turns["noise"], turns["private"]),
  }


def measure(options: harness.Options) -> dict[str, Any]:
  widths, tasks = ((4,), CHUNK) if options.smoke else (WIDTHS, TASKS)
  found = {
      str(width): measure_width(width, tasks, options) for width in widths
  }
  return {
      "settings": {"tasks": tasks, "microbatch_size": CHUNK},
      "widths": found,
      "rows": [
          harness.row(
              f"private step / {what}, Conv4-{width}",
              one[name],
              at_most=target,
              unit="×",
          )
          for width, one in found.items()
          for what, name, target in (
              ("without clipping and noise", "private_to_none", 1.10),
              ("by hand, no task's gradient apart", "private_to_plain", None),
          )
          if name in one
      ],
  }


if __name__ == "__main__":
  harness.main(measure, repeats=9)

"""The private step beside one built on jax_privacy; prints JSON.

  python -m experiments.benchmarks.peers --out=peers.json

Both draw the same tasks with the same sampler (5-way 1-shot, Conv4-16, second
order, 1 inner step, 1 query per class), clip each task's gradient, in chunks of
4, add noise to the sum and update:

  ours         `private.make_meta_step`
  jax_privacy  `clipped_grad` with a task as the example, in microbatches, and
               `gaussian_privatizer`

jax_privacy is in the extra `bench` (pip install -e '.[bench]'); without it ours
is measured alone.
"""

import functools
import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import optax

from episodic_dp import private
from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.cli import devices
from experiments.benchmarks import harness
from experiments.benchmarks import settings

WIDTH, TASKS, CHUNK = 16, 16, 4


def jax_privacy_step(run: settings.Run) -> Any:
  """State -> (state, {}): the step of the other library."""
  from jax_privacy import clipping  # Late: it may not be installed.
  from jax_privacy import noise_addition

  plan, hierarchy = run.plan, run.dataset.hierarchy
  clip_norm = run.mechanism.clip_norm
  gradient = clipping.clipped_grad(
      run.learner.loss,
      l2_clip_norm=clip_norm,
      keep_batch_dim=False,
      microbatch_size=CHUNK,
  )
  privatizer = noise_addition.gaussian_privatizer(
      stddev=clip_norm * run.mechanism.noise_multiplier,
      prng_key=jax.random.key(1),
  )

  @functools.partial(jax.jit, donate_argnums=0)
  def update(carried, images):
    state, noise_state = carried
    key = jax.random.fold_in(state.key, state.step)
    drawn = sampling.sample(key, hierarchy, plan, state.step)
    rows, _ = sampling.task_indices(*drawn, plan)
    tasks = jax.vmap(
        lambda key, images: sampling.make_episode(key, images, plan.episode)
    )(jax.random.split(key, rows.shape[0]), images[run.dataset.rows(rows)])
    total = gradient(state.params, tasks)
    noised, noise_state = privatizer.update(total, noise_state)
    mean = jax.tree.map(lambda g: g / rows.shape[0], noised)
    updates, opt_state = run.optimizer.update(
        mean, state.opt_state, state.params
    )
    params = optax.apply_updates(state.params, updates)
    state = state._replace(
        params=params, opt_state=opt_state, step=state.step + 1
    )
    return (state, noise_state), {}

  images = jnp.asarray(run.dataset.images)
  state: private.State = run.init()
  carried = state, privatizer.init(state.params)
  return harness.steps(lambda carried: update(carried, images), carried)


def measure(options: harness.Options) -> dict[str, Any]:
  width, tasks = (4, CHUNK) if options.smoke else (WIDTH, TASKS)
  run = settings.omniglot(
      inner_steps=1, query=1, width=width, tasks=tasks, smoke=options.smoke
  )
  # As training makes it, and with the peer's tasks at once on one device.
  mesh = training.make_mesh()
  cases = {
      "ours": harness.steps(run.step(mesh=mesh), run.init()),
      "one device": harness.steps(
          run.step(microbatch_size=CHUNK), run.init()
      ),
  }
  if importlib.util.find_spec("jax_privacy"):
    cases["jax_privacy"] = jax_privacy_step(run)
  turns = harness.interleaved(
      {
          name: functools.partial(harness.timed, case)
          for name, case in cases.items()
      },
      options.repeats,
  )
  rows = []
  if "jax_privacy" in turns:
    rows = [
        harness.row(
            f"jax_privacy / private step, {name}, Conv4-{width}",
            harness.ratio(turns["jax_privacy"], turns[case]),
            unit="×",
        )
        for case, name in (
            ("ours", "all cores"),
            ("one device", f"one device, {CHUNK} tasks at once"),
        )
    ]
  return {
      "settings": {"width": width, "tasks": tasks, "microbatch_size": CHUNK},
      "cases": {
          name: harness.summary(found) for name, found in turns.items()
      },
      "rows": rows,
  }


if __name__ == "__main__":
  devices.use_cores()
  harness.main(measure, repeats=9)

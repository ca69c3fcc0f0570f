"""Private steps beside others that draw the same tasks with the same sampler.

5-way 1-shot tasks of Omniglot's size. With 1 inner step and 1 query per class a
task costs as little as it can, so that what is added to it shows most.
"""

from collections.abc import Callable
import functools
import importlib.util
from typing import Any

from absl import logging
import jax
from jax import lax
import jax.numpy as jnp
import optax

from episodic_dp import sampling
from episodic_dp import training
from experiments.benchmarks import harness
from experiments.benchmarks import settings

TASKS, CHUNK = 16, 4
# (parameters, drawn tasks, what is carried) -> (sum of gradients, the same).
Total = Callable[[Any, sampling.EpisodeBatch, Any], tuple[Any, Any]]


def overhead(options: harness.Options) -> harness.Found:
  """What clipping and noise add to a step of Conv4, second order.

  "private" clips each task's gradient and adds noise; "none" is the same with
  clip_norm = infinity and noise_multiplier = 0; "plain" is written by hand: the
  gradient of a chunk's summed loss, no task's apart (Conv4-16 alone, since
  compiling it takes long).
  """
  widths, tasks = ((4,), CHUNK) if options.smoke else ((64, 16), TASKS)
  cases: dict[str, Any] = {}
  rows = []
  for width in widths:
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
    steps = {
        "private": run.advance(microbatch_size=CHUNK),
        "none": without.advance(microbatch_size=CHUNK),
    }
    if width == widths[-1]:
      steps["plain"] = _by_hand(run, _plain(run))
    turns = harness.interleaved(steps, options)
    found = harness.summaries(turns)
    cases |= {f"{name}, Conv4-{width}": found[name] for name in found}
    rows += [
        harness.row(
            f"private step / {what}, Conv4-{width}",
            harness.ratio(turns["private"], turns[name]),
            at_most=target,
            unit="×",
        )
        for name, what, target in (
            ("none", "without clipping and noise", 1.10),
            ("plain", "by hand, no task's gradient apart", None),
        )
        if name in turns
    ]
  return harness.Found(
      settings={"tasks": tasks, "microbatch_size": CHUNK},
      cases=cases,
      rows=rows,
  )


def sample_level(options: harness.Options) -> harness.Found:
  """What clipping every example costs beside clipping every task.

  Conv4 with group norm, first order, 5 inner steps. "task_level" clips a task's
  gradient and noises the sum; "sample_level" clips every query example's, and
  every support example's in every inner step, whose sum is noised too.
  """
  width, tasks, inner = (4, CHUNK, 2) if options.smoke else (64, TASKS, 5)
  make = functools.partial(
      settings.omniglot,
      inner_steps=inner,
      query=1,
      width=width,
      tasks=tasks,
      order="first",
      norm="group",
      smoke=options.smoke,
  )
  runs = {
      "task_level": make(),
      "sample_level": make(
          clip_unit="image", inner_clip_norm=1.0, inner_noise_multiplier=1.0
      ),
  }
  turns = harness.interleaved(
      {n: run.advance(microbatch_size=CHUNK) for n, run in runs.items()},
      options,
  )
  return harness.Found(
      settings={
          "width": width,
          "tasks": tasks,
          "microbatch_size": CHUNK,
          "inner_steps": inner,
      },
      cases=harness.summaries(turns),
      rows=[
          harness.row(
              f"sample-level step / task-level first-order step, Conv4-{width}",
              harness.ratio(turns["sample_level"], turns["task_level"]),
              at_most=2.0,
              unit="×",
          )
      ],
  )


def peers(options: harness.Options) -> harness.Found:
  """The private step beside one built on jax_privacy, Conv4, second order.

  "ours" as training makes it, with tasks on every device; "one device" with
  the peer's tasks at once. "jax_privacy" is `clipped_grad` with a task as the
  example, in microbatches, and `gaussian_privatizer`. It is in the extra
  `bench` (pip install -e '.[bench]'); without it ours is measured alone.
  """
  width, tasks = (4, CHUNK) if options.smoke else (16, TASKS)
  run = settings.omniglot(
      inner_steps=1, query=1, width=width, tasks=tasks, smoke=options.smoke
  )
  cases = {
      "ours": run.advance(mesh=training.make_mesh()),
      "one device": run.advance(microbatch_size=CHUNK),
  }
  if importlib.util.find_spec("jax_privacy"):
    cases["jax_privacy"] = _by_hand(run, *_jax_privacy(run))
  else:
    logging.warning(
        "ours is measured alone: jax_privacy is not installed:"
        " pip install -e '.[bench]'"
    )
  turns = harness.interleaved(cases, options)
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
      if "jax_privacy" in turns
  ]
  return harness.Found(
      settings={"width": width, "tasks": tasks, "microbatch_size": CHUNK},
      cases=harness.summaries(turns),
      rows=rows,
  )


def _by_hand(
    run: settings.Run, total: Total, carried: Any = ()
) -> Callable[[], Any]:
  """Advances a run by steps that know of its sampling alone.

  Args:
    run: data, plan and optimizer.
    total: the sum over a step's tasks.
    carried: what it is given in the first step.
  """
  images = jnp.asarray(run.dataset.images)
  episode = run.plan.episode
  assert episode is not None  # All plans of the benchmarks have tasks.

  @functools.partial(jax.jit, donate_argnums=0)
  def update(both, images):
    state, carried = both
    key = jax.random.fold_in(state.key, state.step)
    drawn = sampling.sample(key, run.dataset.hierarchy, run.plan, state.step)
    rows, _ = sampling.task_indices(*drawn, run.dataset.hierarchy, run.plan)
    tasks = jax.vmap(
        functools.partial(sampling.make_episode, episode=episode)
    )(jax.random.split(key, rows.shape[0]), images[run.dataset.rows(rows)])
    gradient, carried = total(state.params, tasks, carried)
    mean = jax.tree.map(lambda g: g / rows.shape[0], gradient)
    updates, opt_state = run.optimizer.update(
        mean, state.opt_state, state.params
    )
    params = optax.apply_updates(state.params, updates)
    state = state._replace(
        params=params, opt_state=opt_state, step=state.step + 1
    )
    return (state, carried), {}

  return harness.steps(
      lambda both: update(both, images), (run.init(), carried)
  )


def _plain(run: settings.Run) -> Total:
  """The sum of gradients of a loop that knows nothing of privacy."""

  def total(params, tasks, carried):
    def loss(params, some):
      return jax.vmap(run.learner.loss, (None, 0))(params, some).sum()

    def add(total, some):
      return jax.tree.map(jnp.add, total, jax.grad(loss)(params, some)), None

    chunks = jax.tree.map(
        lambda a: a.reshape(-1, CHUNK, *a.shape[1:]), tasks
    )
    zeros = jax.tree.map(jnp.zeros_like, params)
    return lax.scan(add, zeros, chunks)[0], carried

  return total


def _jax_privacy(run: settings.Run) -> tuple[Total, Any]:
  """The noised sum of the other library, and what it carries first."""
  # Lazy import: it may not be installed.
  from jax_privacy import clipping
  from jax_privacy import noise_addition

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

  def total(params, tasks, carried):
    return privatizer.update(gradient(params, tasks), carried)

  return total, privatizer.init(run.init().params)

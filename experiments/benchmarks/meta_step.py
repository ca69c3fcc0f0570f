"""The private meta-step's gradients beside other ways to compute them.

5-way 1-shot tasks of 28 x 28, Conv4 with batch normalisation and max-pool,
second-order MAML, every task's gradient clipped and summed; (a) 1 inner step
and 15 queries per class, (b) 5 and 1, both of width 64, and a narrow network.

  ours   the step of `private.make_meta_step` without noise: the tasks shared
         out over the devices (a CPU counts as one for every core), on each as
         many at once as `private.Compute` says by default
  one    the same on one device, whose products use all cores
  lax    `vmap` over all tasks with `lax.conv_general_dilated`, where the
         network is narrow
  torch  PyTorch: a loop that clips each task, `functional_call` and autograd,
         with a thread for every core
  torch_side_by_side  such loops in a process of one thread for every core, each
         with its share of the tasks; the target is against the better of both

All start from the same weights and tasks. Our sums must agree within 1e-2 with
torch in float64 (and with lax): rounding to float32 may take another maximum of
a pool, which changes a task's gradient, and the more so the larger the inner
steps, hence small ones. How far torch's own float32 is from ours is recorded as
"torch_float32".

The floor of a task is the operations of its plain convolutions over the
measured rate of a matrix product. On an accelerator (b) is also measured with
several numbers of tasks at once (`config.compute.microbatch_size`) and with
products in the precision that JAX takes by default (TF32 or bfloat16 operands
on some) and in float32 (JAX_DEFAULT_MATMUL_PRECISION=float32).
"""

from collections.abc import Mapping
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from episodic_dp import private
from episodic_dp import sampling
from episodic_dp import training
from experiments.benchmarks import harness
from experiments.benchmarks import settings
from experiments.benchmarks import sums as sums_lib
from experiments.benchmarks import workers

WAY = settings.WAY
APART = 1e-2  # At most, relatively.
NARROW = 16
TARGETS = {"a": 2.5, "b": 2.5}  # Times as fast as the best PyTorch loop.
# A PyTorch loop, by the arrangement of its workers.
_LOOPS = {
    workers.TOGETHER: "torch",
    workers.SIDE_BY_SIDE: "torch_side_by_side",
}
_PEERS = {
    "one_to_ours": "one device",
    "lax_to_ours": "vmap of lax.conv",
    "torch_to_ours": f"PyTorch loop, {workers.TOGETHER}",
    "torch_side_by_side_to_ours": f"PyTorch loops, {workers.SIDE_BY_SIDE}",
}
_ON_ONE_H200 = 0.5  # Milliseconds a task of case (b).


class Case(NamedTuple):
  """Sizes of a case; queries are those of a class."""

  width: int
  inner_steps: int
  query: int
  tasks: int


CASES = {
    "a": Case(64, 1, 15, 16),
    "b": Case(64, 5, 1, 16),
    "narrow": Case(16, 1, 1, 32),
}
SMOKE = Case(4, 1, 1, 2)


def make_run(case: Case) -> settings.Run:
  """A run without noise whose update is the mean of the clipped gradients."""
  run = settings.omniglot(
      inner_steps=case.inner_steps,
      inner_rate=sums_lib.RATE,
      query=case.query,
      width=case.width,
      tasks=case.tasks,
      clip_norm=sums_lib.CLIP,
      noise_multiplier=0.0,
  )
  return dataclasses.replace(run, optimizer=optax.sgd(1.0))


def operations(case: Case) -> float:
  """Of a task's convolutions, were each of them a plain one.

  A gradient costs three forward passes, and differentiating it thrice that;
  the images themselves need no gradient.
  """
  total, size, channels = 0.0, 28, 1
  for i in range(4):
    inner, outer = (5, 2) if i == 0 else (9, 3)
    images = WAY * (case.inner_steps * inner + case.query * outer)
    # Multiplications and additions of a 3 x 3 kernel.
    total += 2.0 * size * size * 9 * channels * case.width * images
    size, channels = size // 2, case.width
  return total


def measure_case(
    case: Case,
    pools: Mapping[str, workers.Workers],
    options: harness.Options,
) -> dict[str, Any]:
  """One setting: its cases, what their sums differ by, and the ratios.

  Args:
    case: the setting.
    pools: from `workers.started`.
    options: of the benchmark.

  Raises:
    ValueError: the sums differ by more than rounding explains.
  """
  run = make_run(case)
  params = jax.device_get(run.init().params)
  episodes = run.drawn_tasks()
  skipped = {}
  mesh = training.make_mesh()
  step, ours = run.first_sum(case.tasks, mesh=mesh)
  functions, sums = {"ours": step}, {}
  if jax.device_count() > 1:
    functions["one"], sums["one"] = run.first_sum(case.tasks)
  if case.width <= NARROW:
    functions["lax"] = sums_lib.plain_sum(params, case.inner_steps, episodes)
    sums["lax"] = jax.device_get(functions["lax"]())
  else:
    skipped["lax"] = f"takes seconds a task where width {case.width} > {NARROW}"
  if not pools:
    skipped["torch"] = workers.SKIPPED
  for arrangement, pool in pools.items():
    name = _LOOPS[arrangement]
    functions[name] = functools.partial(pool.run, "float32")
    pool.clear()
    sums[f"{name}_float32"] = _start_loops(pool, params, case, episodes)
  if pools:
    sums["torch"] = _start_loops(
        pools[workers.SIDE_BY_SIDE], params, case, episodes, "float64"
    )
  apart = {n: sums_lib.difference(ours, total) for n, total in sums.items()}
  for name, value in apart.items():
    if not name.endswith("_float32") and not value < APART:
      raise ValueError(
          f"sums of clipped gradients differ by {value:.3g} from {name}'s"
      )
  turns = harness.interleaved(functions, options)
  return {
      "settings": case._asdict()
      | {
          "microbatch_size": private.Compute().microbatch_size,
          "devices": jax.device_count(),
          "threads": workers.CORES,
      },
      "per_task": harness.summaries(turns, case.tasks),
      "relative_difference_of_sums": apart,
      "skipped": skipped,
      "ratios": {
          f"{name}_to_ours": harness.ratio(turns[name], turns["ours"])
          for name in functions
          if name != "ours"
      },
  }


def _start_loops(
    pool: workers.Workers,
    params: Any,
    case: Case,
    episodes: sampling.EpisodeBatch,
    dtype: str = "float32",
) -> Any:
  """Makes PyTorch loops, which run by their dtype's name; their sum."""
  parts = sums_lib.shares(episodes, pool.count)
  pool.make(
      dtype,
      "sums.torch_sum",
      [(params, case.inner_steps, part, dtype) for part in parts],
  )
  return sums_lib.added(pool.values(dtype))


def best_loop(ratios: Mapping[str, Mapping[str, float]]) -> str | None:
  """The PyTorch loop that is nearest to ours; None where there is none."""
  loops = [name for name in ratios if name.startswith("torch")]
  return min(loops, key=lambda n: ratios[n]["median"], default=None)


def at_once(
    case: Case, sizes: tuple[int, ...], options: harness.Options
) -> dict[str, Any]:
  """Name -> a task's times, by microbatch size and precision of products."""
  run, steps = make_run(case), {}
  for precision in ("default", "float32"):
    for size in sizes:
      with jax.default_matmul_precision(precision):
        advance = run.advance(microbatch_size=size)
        harness.wait(advance())  # Traced here, with this precision.
      steps[f"{size} at once, {precision}"] = advance
  return harness.summaries(harness.interleaved(steps, options), case.tasks)


def measure(options: harness.Options) -> harness.Found:
  """Every case, its peers, and the floor."""
  made = {"narrow": SMOKE} if options.smoke else CASES
  rate = matmul_gflops(options.smoke)
  with workers.started() as pools:
    found = {
        name: measure_case(case, pools, options)
        for name, case in made.items()
    }
  rows, cases = [], dict[str, Any]()
  for name, one in found.items():
    times = one.pop("per_task")
    cases |= {f"{name}, {peer}": times[peer] for peer in times}
    seconds = times["ours"]["seconds"]
    one["floor_seconds"] = operations(made[name]) / (1e9 * rate)
    rows.append(
        harness.row(
            f"meta-step ({name}): all cores / the floor",
            seconds / one["floor_seconds"],
            unit="×",
            note=f"{1e3 * seconds:.1f} ms a task",
        )
    )
  rows += [
      harness.row(
          f"meta-step ({name}): {_PEERS[ratio]} / all cores",
          value,
          at_least=TARGETS.get(name)
          if ratio == best_loop(one["ratios"])
          else None,
          unit="×",
          note="the better loop" if ratio == best_loop(one["ratios"]) else "",
      )
      for name, one in found.items()
      for ratio, value in one["ratios"].items()
  ]
  tuned = {}
  if options.smoke:
    tuned = at_once(SMOKE, (1, 2), options)
  elif jax.default_backend() != "cpu":
    case = CASES["b"]._replace(tasks=256)
    tuned = at_once(case, (8, 16, 32, 64, 128), options)
  rows += [
      harness.row(
          f"a task of case (b), one device, {name}",
          1e3 * one["seconds"],
          at_most=None if options.smoke else _ON_ONE_H200,
          unit="ms",
      )
      for name, one in tuned.items()
  ]
  return harness.Found(
      settings={"matmul_gflops": rate},
      cases=cases | tuned,
      rows=rows,
      more=found,
  )


def matmul_gflops(smoke: bool = False) -> float:
  """The measured rate of a product of two large square float32 matrices.

  At JAX's default precision, on all cores; the fastest of several.
  """
  accelerator = jax.default_backend() != "cpu"
  side = 256 if smoke else 8192 if accelerator else 2048
  product = jax.jit(jnp.dot)
  a = jnp.full((side, side), 0.5, jnp.float32)
  harness.wait(product(a, a))
  seconds = min(harness.timed(product, a, a).seconds for _ in range(5))
  return 2e-9 * side**3 / seconds

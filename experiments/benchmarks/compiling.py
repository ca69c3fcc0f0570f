"""How long a user waits for the first step, with nothing cached.

On one CPU core and one device: what the first call of a step takes more than
the second one, which is tracing, lowering and compiling. Every measurement is
in a process of its own. `CASES` says what they are; the settings (a) and (b)
are those of `meta_step`.
"""

import functools
import os

from experiments.benchmarks import harness

# Lazy imports below: the process has chosen its core when JAX starts.
# name -> what it is, and the seconds it should take at most.
CASES = {
    "a": ("meta-step (a), Conv4-64, 1 inner step, 15 queries", 8.0),
    "b": ("meta-step (b), Conv4-64, 5 inner steps, 1 query", 10.0),
    "main": ("a step of the built-in main job", 4.0),
}
SMOKE_CASES = ("a",)


def measure_case(case: str, smoke: bool) -> harness.Turn:
  """One measurement, in this process, which keeps to one core from now on."""
  if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
  import jax

  jax.config.update("jax_enable_compilation_cache", False)
  step, state = _main_job() if case == "main" else _meta_step(case, smoke)

  def take() -> None:
    nonlocal state
    state, _ = step(state)
    jax.block_until_ready(state)

  first, second = harness.timed(take), harness.timed(take)
  return first._replace(
      seconds=first.seconds - second.seconds,
      cpu_seconds=first.cpu_seconds - second.cpu_seconds,
  )


def _meta_step(case, smoke):
  from experiments.benchmarks import meta_step

  run = meta_step.make_run(
      meta_step.SMOKE if smoke else meta_step.CASES[case]
  )
  return run.step(), run.init()


def _main_job():
  import jax

  from episodic_dp import private
  from episodic_dp.config import build
  from episodic_dp.config import RunConfig
  from episodic_dp.config.presets import glyphs

  spec = build.build(RunConfig.parse(glyphs.get_config(""))).spec
  step = private.make_meta_step(
      spec.learner, spec.optimizer, spec.train, spec.release,
      compute=private.Compute(mesh=None),
  )
  return step, private.init(
      jax.random.key(0), spec.learner, spec.optimizer, spec.release.mechanism
  )


def measure(options: harness.Options) -> harness.Found:
  """Every case in turns, in seconds."""

  def case(name: str) -> harness.Turn:
    return harness.Turn(
        *harness.in_a_process("compiling.measure_case", name, options.smoke)
    )

  names = SMOKE_CASES if options.smoke else tuple(CASES)
  turns = harness.interleaved(
      {name: functools.partial(case, name) for name in names}, options,
      warm_up=0,
  )
  cases = harness.summaries(turns)
  return harness.Found(
      settings={"cores": 1, "cached": "nothing"},
      cases=cases,
      rows=[
          harness.row(
              f"compiling {CASES[name][0]}",
              {
                  "median": one["seconds"], "least": one["fastest"],
                  "most": one["slowest"],
              },
              at_most=CASES[name][1],
              unit="s",
          )
          for name, one in cases.items()
      ],
  )

"""The benchmarks: to add one, write its function and name it here."""

from collections.abc import Callable
import importlib
from typing import NamedTuple

from experiments.benchmarks import harness


class Benchmark(NamedTuple):
  """A benchmark of the folder.

  Attributes:
    function: "MODULE.FUNCTION" of this folder, options -> `harness.Found`.
    about: what it measures, in a few words.
    repeats: turns of every case; 2 where it is only tried.
    with_jax: whether its process imports JAX.
    cores: whether it takes every core of a CPU for a device, as training does;
      otherwise one device's products use all cores.
  """

  function: str
  about: str
  repeats: int
  with_jax: bool = True
  cores: bool = False

  def load(self) -> Callable[[harness.Options], harness.Found]:
    """Its function, whose module may import JAX."""
    module, _, name = self.function.partition(".")
    found = importlib.import_module(f"experiments.benchmarks.{module}")
    return getattr(found, name)


BENCHMARKS = {
    "accounting": Benchmark(
        "accounting.measure",
        "the accountant's time and tightness, beside dp_accounting's",
        repeats=5,
        with_jax=False,
    ),
    "compiling": Benchmark(
        "compiling.measure",
        "how long a step takes to compile on one core, nothing cached",
        repeats=3,
        with_jax=False,
    ),
    "devices": Benchmark(
        "devices.measure",
        "two processes of a core each beside one: time and parameters",
        repeats=5,
    ),
    "memory": Benchmark(
        "memory.measure",
        "a step's memory against its number of tasks",
        repeats=1,
        with_jax=False,
    ),
    "meta_step": Benchmark(
        "meta_step.measure",
        "the meta-step beside a PyTorch loop and the floor; on an accelerator"
        " which microbatch and precision is quickest",
        repeats=5,
        cores=True,
    ),
    "overhead": Benchmark(
        "private_steps.overhead",
        "what clipping and noise add to a step",
        repeats=9,
    ),
    "peers": Benchmark(
        "private_steps.peers",
        "the private step beside one built on jax_privacy",
        repeats=9,
        cores=True,
    ),
    "sample_level": Benchmark(
        "private_steps.sample_level",
        "clipping every example beside clipping every task",
        repeats=9,
    ),
    "sampling": Benchmark(
        "sampling.measure",
        "the sampler's share of a step, and its cost against the population",
        repeats=9,
    ),
    "shared_weights": Benchmark(
        "shared_weights.measure",
        "steps of learners whose tasks share the weights, beside PyTorch's best"
        " way and the floor",
        repeats=3,
        cores=True,
    ),
    "streaming": Benchmark(
        "streaming.measure",
        "data that stay on the host beside data on the device",
        repeats=7,
        cores=True,
    ),
}

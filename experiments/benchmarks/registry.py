"""The benchmarks: to add one, write its function and name it here."""

from typing import NamedTuple


class Benchmark(NamedTuple):
  """A benchmark of the folder.

  Attributes:
    function: "MODULE.FUNCTION" of this folder, options -> `harness.Found`.
    about: the measured quantity, in a few words.
    repeats: turns of every case; 1 where it is only tried.
    with_jax: whether its process imports JAX.
    cores: whether it takes every core of a CPU for a device, as training does;
      otherwise one device's products use all cores.
  """

  function: str
  about: str
  repeats: int
  with_jax: bool = True
  cores: bool = False


BENCHMARKS = {
    "accounting": Benchmark(
        "accountant_queries.measure",
        "the accountant's time and tightness, beside dp_accounting's",
        repeats=5,
        with_jax=False,
    ),
    "meta_step": Benchmark(
        "steps.meta_step",
        "the meta-step beside PyTorch loops and the floor; on an accelerator"
        " which microbatch and precision is fastest",
        repeats=5,
        cores=True,
    ),
    "overhead": Benchmark(
        "steps.overhead", "the time of clipping and noise in a step", repeats=9
    ),
    "peers": Benchmark(
        "steps.jax_privacy",
        "the private step beside one built on jax_privacy",
        repeats=9,
        cores=True,
    ),
    "sample_level": Benchmark(
        "steps.sample_level",
        "clipping every example beside clipping every task",
        repeats=9,
    ),
    "sampling": Benchmark(
        "steps.sampling",
        "the sampler's share of a step, and its cost against the population",
        repeats=9,
    ),
    "streaming": Benchmark(
        "steps.streaming",
        "data that stay on the host beside data on the device",
        repeats=7,
        cores=True,
    ),
}

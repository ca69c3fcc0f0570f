"""Compare values with those of other programs: docs/cross_checks.md.

  python -m tests.accounting.test_cross_checks

prints the table of that page. A program that is not installed is left out; the
extra `bench` names all of them.
"""

from collections.abc import Callable
import importlib
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from episodic_dp import accounting
from episodic_dp import plan
from tests import plans

IMAGES = plan.Poisson(256 / 60_000)


class Check(NamedTuple):
  """One value, computed twice.

  Attributes:
    program: a package.
    run: what is computed, in words.
    ours: computes the value.
    theirs: the package -> its value, or its lower and its upper bound.
    within: the relative difference that two grids may make.
  """

  program: str
  run: str
  ours: Callable[[], float]
  theirs: Callable[..., tuple[float, ...]]
  within: float = 2e-3


def release(z, *stages, sizes=(60_000,)):
  levels = ("user", "example")[-len(sizes) :]
  return plans.release(
      plans.tree(levels, *sizes), plans.sampling(*stages),
      "example", z,
  )


def epsilon(run, steps, delta, level="example", **options):
  return lambda: accounting.guarantee(
      run, steps=steps, delta=delta, level=level, **options
  ).epsilon


def composed(event, steps, delta, *, accountant="pld", replaced=False):
  """Compose an event, which is made of the package, as dp_accounting does."""

  def theirs(package):
    relation = package.NeighboringRelation[
        "REPLACE_ONE" if replaced else "ADD_OR_REMOVE_ONE"
    ]
    if accountant == "pld":
      found = package.pld.PLDAccountant(
          relation, value_discretization_interval=1e-4
      )
    else:
      # As dense as ours, which are refined at the best one.
      orders = [*np.arange(1.3, 40, 0.1), *range(40, 129)]
      found = package.rdp.RdpAccountant(orders, relation)
    if not found.supports(event(package)):
      raise NotImplementedError
    found.compose(event(package), steps)
    return (found.get_epsilon(delta),)

  return theirs


def poisson(p, z):
  return lambda d: d.PoissonSampledDpEvent(p, d.GaussianDpEvent(z))


def subset(n, size, z):
  """Sampling without replacement, whose noise is relative to a replacement."""
  return lambda d: d.SampledWithoutReplacementDpEvent(
      size, n, d.GaussianDpEvent(z / 2)
  )


def at_most(theirs):
  return lambda package: (0.0, *theirs(package))


def users(d):
  """The number of drawn examples of a user who has 20."""
  law = stats.binom.pmf(range(21), 20, IMAGES.p).tolist()
  return d.dp_event.MixtureOfGaussiansDpEvent(4.0, list(range(21)), law)


def one_pass(z, steps):
  return lambda d: d.dp_event.RandomAllocationDpEvent(
      event=d.GaussianDpEvent(z), num_selected=1, num_steps=steps
  )


def bracket(z, steps):
  return lambda package: package.gaussian_allocation_epsilon_range(
      delta=1e-8, sigma=z, num_steps=steps
  )[::-1]


def dpsgd(jax_privacy):
  return jax_privacy.DpsgdTrainingAccountant(
      dp_accountant_config=jax_privacy.PldAccountantConfig()
  )


def noise(jax_privacy):
  return (
      jax_privacy.calibrate_noise_multiplier(
          target_epsilon=2.0, accountant=dpsgd(jax_privacy), batch_sizes=600,
          num_updates=1000, num_samples=60_000, target_delta=1e-5, tol=1e-4,
      ),
  )


def fixed_batches(jax_privacy):
  settings = jax_privacy.DpParams(
      noise_multipliers=4.0, num_samples=1000, delta=1e-5, batch_size=50,
      sampling_method=jax_privacy.SamplingMethod.FIXED_BATCH_SIZE,
  )
  return (dpsgd(jax_privacy).compute_epsilon(500, settings),)


RARE = release(1.0, 0.004)
BATCHES = release(4.0, 50, sizes=(1000,))
REPLACED = dict(neighbours="replace-one")
CHECKS = [
    Check(
        "dp_accounting", "PLD, Poisson(256 of 60 000), z = 1.1, 14 000 steps",
        epsilon(release(1.1, IMAGES), 14_000, 1e-5),
        composed(poisson(IMAGES.p, 1.1), 14_000, 1e-5),
    ),
    Check(
        "dp_accounting", "PLD, Poisson(0.004), z = 1, 250 steps",
        epsilon(RARE, 250, 1e-6), composed(poisson(0.004, 1.0), 250, 1e-6),
    ),
    Check(
        "dp_accounting", "the same, replace-one",
        epsilon(RARE, 250, 1e-6, **REPLACED),
        composed(poisson(0.004, 1.0), 250, 1e-6, replaced=True),
    ),
    Check(
        "dp_accounting", "RDP, Poisson(0.004), z = 1, 250 steps",
        epsilon(RARE, 250, 1e-6, accountant="rdp"),
        composed(poisson(0.004, 1.0), 250, 1e-6, accountant="rdp"),
    ),
    Check(
        "dp_accounting",
        "RDP, FixedSize(50 of 1000), z = 4, 500 steps, replace-one",
        epsilon(BATCHES, 500, 1e-5, **REPLACED),
        at_most(composed(
            subset(50, 1000, 4.0), 500, 1e-5, accountant="rdp", replaced=True
        )),
    ),
    Check(
        "dp_accounting",
        "PLD, a user of 20 examples, Poisson(256 of 60 000), z = 4, 14 000"
        " steps",
        epsilon(
            release(4.0, plan.All(), IMAGES, sizes=(3000, 20)), 14_000, 1e-5,
            level="user",
        ),
        composed(users, 14_000, 1e-5),
    ),
    *(
        Check(
            program, f"one pass of {steps} steps, z = {z:g}",
            epsilon(release(z, plan.RandomAllocation(steps)), steps, 1e-8),
            theirs,
        )
        for z, steps in ((1.0, 8), (2.0, 64), (0.5, 16))
        for program, theirs in (
            ("PLD_accounting", bracket(z, steps)),
            ("dp_accounting", composed(one_pass(z, steps), 1, 1e-8)),
        )
    ),
    Check(
        "jax_privacy.accounting",
        "noise multiplier for ε = 2, Poisson(0.01), 1000 steps",
        lambda: accounting.calibrate(
            release(1.0, 0.01), epsilon=2.0, steps=1000,
            delta=1e-5, level="example",
        ).noise_multiplier,
        noise,
    ),
    Check(
        "jax_privacy.accounting", "FixedSize(50 of 1000), z = 4, 500 steps",
        epsilon(BATCHES, 500, 1e-5), fixed_batches,
    ),
]


def values(check):
  """Return our value and theirs; None where the program cannot tell."""
  try:
    theirs = check.theirs(importlib.import_module(check.program))
  except (ImportError, AttributeError, NotImplementedError):
    return None
  return check.ours(), theirs


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: f"{c.program}: {c.run}")
def test_it_agrees_with_a_program_of_others(check):
  found = values(check)
  if found is None:
    pytest.skip(f"{check.program} is not installed or too old: pip install"
                " -e '.[bench]'")
  ours, theirs = found
  assert theirs[0] * (1 - check.within) <= ours
  assert ours <= theirs[-1] * (1 + check.within)


def main():
  print("| program | value | ours | theirs | difference |")
  print("| --- | --- | --- | --- | --- |")
  for check in CHECKS:
    if (found := values(check)) is not None:
      ours, theirs = found
      bounds = (
          " to ".join(f"{value:.4f}" for value in theirs)
          if theirs[0]
          else f"at most {theirs[-1]:.4f}"
      )
      change = f"{round(100 * (ours / theirs[-1] - 1), 2) + 0.0:+.2f} %"
      cells = (check.program, check.run, f"{ours:.4f}", bounds, change)
      print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
  main()

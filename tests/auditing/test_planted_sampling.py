"""The audit finds mistakes in how records are drawn and in what that costs.

In every test the sound program passes at the same settings.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.auditing import canaries
from episodic_dp.sampling import draws
from episodic_dp.sampling import sampler
from experiments.evidence import errata
from tests import plans
from tests.auditing import planted

pytestmark = pytest.mark.usefixtures("quickly_compiled")
Z, STEPS, RUNS = 2.0, 8, 2000


def printed(audit):
  """Theorem 3 of "Privacy Amplification for Episodic Training Methods".

  As printed it takes the base mechanism at one clip norm, whatever the sampler,
  and composes like one stage of rate eta.
  """
  eta = plan.inclusion_rate(
      audit.with_record.hierarchy, audit.plan, audit.level
  )

  def epsilon(steps):
    return accounting.epsilon(
        1.0, eta, 1 / Z, steps=steps, delta=planted.DELTA
    )

  # One step of it is what the tables of errata say.
  assert errata.theorem3_as_printed(eta, epsilon(1), Z) == pytest.approx(
      planted.DELTA, rel=0.01
  )
  return epsilon(audit.steps)


def _two(stage):
  """Participants that pull apart."""
  return planted.of_participants(
      [[1.0], [-1.0]], stage, steps=STEPS, noise_multiplier=Z
  )


@pytest.mark.slow
def test_the_printed_theorem_claims_too_little_for_fixed_sizes():
  """If one of two is removed, the other takes its place."""
  audit, score = _two(plan.FixedSize(1)), planted.shift_score(2.0, 0.5, Z)
  measured = audit.measure(lambda sums: score(sums + 1), RUNS)
  assert measured > printed(audit) + 0.5
  assert measured < audit.claim()


@pytest.mark.slow
def test_the_printed_theorem_holds_for_the_sampler_of_its_distance():
  audit = _two(plan.Poisson(0.5))
  assert audit.claim() == pytest.approx(printed(audit), rel=0.01)

  def score(sums):
    def log(weight, centre):
      return np.log(weight) - (sums[..., 0] - centre) ** 2 / (2 * Z * Z)

    present = np.logaddexp.reduce([log(0.25, -1), log(0.5, 0), log(0.25, 1)])
    return (present - np.logaddexp(log(0.5, -1), log(0.5, 0))).sum(1)

  assert 0.2 < audit.measure(score, RUNS) < printed(audit)


# Sorted order -----------------------------------------------------------------


def _in_pairs(task):
  """1 where the two classes of a task are (1, 2), (3, 4), ..; else -1.

  A class has its number for an image.
  """
  numbers = task.query.images[:, 0, 0, 0]
  first, second = jnp.min(numbers), jnp.max(numbers)
  whole = (second == first + 1) & (first % 2 == 1)
  return jnp.where(whole, 1.0, -1.0)[None]


def _classes(first, last):
  numbers = np.arange(first, last + 1, dtype=np.float32)
  return canaries.canary_dataset(
      np.repeat(numbers[:, None], 2, axis=0),
      plans.tree("class image", len(numbers), 2),
  )


def _pairs_of_classes():
  """16 of the classes 0 .. 16, or all of 1 .. 16, cut into 8 tasks."""
  return planted.Audit(
      _classes(0, 16),
      _classes(1, 16),
      planted.Chosen(1, 2, _in_pairs),
      plans.sampling(16, 2, way=2, shot=1, query=1, form="disjoint"),
      plan.Mechanism(clip_unit=plan.EPISODE, noise_multiplier=8.0),
      "class",
      4,
  )


def _low(sums):
  """Fewer whole pairs say that class 0 was there."""
  return -sums[..., 0].sum(1)


@pytest.mark.slow
def test_classes_in_sorted_order_regroup_every_task(monkeypatch):
  audit, runs = _pairs_of_classes(), 1000
  claim = audit.claim()
  assert audit.measure(_low, runs) < claim
  ordered = draws.draw_ordered

  def draw_sorted(bits, n_children, slots):
    drawn = ordered(bits, n_children, slots)
    return jnp.sort(drawn) if slots == 16 else drawn

  monkeypatch.setattr(draws, "draw_ordered", draw_sorted)
  # What was traced before draws in random order still.
  monkeypatch.setattr(sampler, "_draw", sampler._draw.__wrapped__)
  assert audit.measure(_low, runs) > claim + 0.5

"""The sampler without JAX: the same plans, the same distribution."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp.plan import binomial
from episodic_dp.plan import sampler_error
from episodic_dp.sampling import draws
from episodic_dp.sampling import numpy_sampler
from tests.sampling import oracle
from tests.sampling.oracle import A
from tests.sampling.oracle import ALPHA
from tests.sampling.oracle import F
from tests.sampling.oracle import LEVELS
from tests.sampling.oracle import P
from tests.sampling.oracle import TREE

KEY = bytes(range(16))
DRAWS = 20_000
R = plan.RandomAllocation


def _release(tree, stages, *, levels=LEVELS, episode=None, short=False):
  if isinstance(tree, plan.Hierarchy):
    hierarchy = tree
  else:
    hierarchy = plan.Hierarchy.from_sizes(tree, levels=levels)
  unit = hierarchy.levels[0]
  if episode is not None and episode.form != "unit":
    unit = plan.EPISODE
  return plan.Release(
      hierarchy,
      plan.SamplingPlan(stages, episode, allow_short_units=short),
      plan.Mechanism(clip_unit=unit, clip_norm=1.0, noise_multiplier=1.0),
  )


def _draw(release, draws=DRAWS, step=0):
  """The tree drawn many times over, independently."""
  return numpy_sampler._draw(KEY, release, step, (draws,))


def _words(bits):
  """What the JAX sampler takes: uint32[..., 4], most significant first."""
  halves = np.stack([bits >> np.uint64(32), bits & np.uint64(2**32 - 1)], -1)
  return jnp.asarray(halves.reshape(len(bits), 4).astype(np.uint32))


def _bits(count, seed=0):
  """Random numbers of 128 bits, the extremes among them."""
  bits = np.random.Philox(seed).random_raw(2 * count).reshape(count, 2)
  bits[:4] = np.asarray([[0, 0], [0, 2**64 - 1], [2**64 - 1, 0],
                         [2**64 - 1, 2**64 - 1]], np.uint64)
  return bits


def test_importing_it_does_not_import_jax():
  code = (
      "import sys; from episodic_dp.sampling import numpy_sampler;"
      ""
      " print('jax' in sys.modules, 'torch' in sys.modules)"
  )
  found = subprocess.run(
      [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert found.stdout.split() == ["False", "False"]


def test_uniform_numbers_are_those_of_the_jax_sampler():
  bits = _bits(400)
  n = np.asarray([1, 2, 7, 2**16, 2**31 - 1])[np.arange(400) % 5]
  np.testing.assert_array_equal(
      numpy_sampler._uniform_below(bits, n),
      draws.uniform_below(_words(bits), jnp.asarray(n, jnp.int32)),
  )


@pytest.mark.parametrize("n, p", [(0, 0.5), (7, 0.3), (5, 1.0), (3000, 0.01)])
def test_counts_are_those_of_the_jax_sampler(n, p):
  bits = _bits(400)
  # And numbers at every threshold, just below and just above it.
  table = binomial.binomial_table(n, p).thresholds.astype(np.uint64)
  at = table[:, ::2] << np.uint64(32) | table[:, 1::2]
  one = np.asarray([0, 1], np.uint64)
  bits = np.concatenate([bits, at, at - one, at + one])
  tables, steps = draws.count_tables([n], p)
  np.testing.assert_array_equal(
      numpy_sampler._binomial(bits, n, p),
      draws.draw_counts(_words(bits), tables, 0, steps),
  )


class _Given:
  """A generator whose numbers are given."""

  def __init__(self, bits):
    self._bits = bits

  def random_raw(self, count):
    assert count == self._bits.size
    return self._bits.ravel()


@pytest.mark.parametrize("children", [3, 5, 40])
def test_orders_are_those_of_the_jax_sampler(children):
  families, slots = 50, min(children, 5)
  bits = _bits(families * slots)
  found = numpy_sampler._draw_ordered(
      _Given(bits),
      np.full(families, children),
      np.full(families, slots),
  )
  np.testing.assert_array_equal(
      found.reshape(families, slots),
      draws.draw_ordered(
          _words(bits).reshape(families, slots, 4), children, slots
      ),
  )


@pytest.mark.parametrize(
    "stages",
    [
        (F(1), F(1), F(1)),
        (F(2), F(2), F(1)),
        (F(1), A(), F(2)),
        (P(0.5), P(0.25), F(1)),
        (F(1), P(0.3), P(0.5)),
    ],
    ids=str,
)
def test_subsets_are_as_likely_as_in_algorithm_1(stages):
  release = _release(TREE, stages)
  indices, mask = _draw(release)
  slots = sampler_error.capacities(release.hierarchy, release.plan)
  assert indices.shape[1:] == slots
  assert not indices[~mask].any()
  # Within each unit what was drawn comes first.
  assert (np.diff(mask.astype(int), axis=-1) <= 0).all()
  drawn = oracle.included(indices, mask, 18)
  oracle.check_subsets(TREE, stages, drawn, DRAWS)


def test_empty_and_short_units():
  tree, stages = [[0, 1, 5], [], [3]], (F(2), P(0.5), F(2))
  indices, mask = _draw(_release(tree, stages, short=True))
  oracle.check_pairs(tree, stages, oracle.included(indices, mask, 9), DRAWS)


def test_a_pass_draws_every_unit_once_and_steps_are_uniform():
  steps, units = 4, 3
  release = _release([2] * units, (R(steps), F(1)), levels=("p", "image"))
  when = np.zeros((300, units), int)
  for step in range(300 * steps):
    indices, mask = numpy_sampler.sample(KEY, release, step)
    drawn = indices[mask] // 2
    assert len(set(drawn)) == len(drawn)
    when[step // steps, drawn] += 1 + step % steps
  # Each once in a pass: a sum of two would not be told, their number is.
  assert ((when >= 1) & (when <= steps)).all()
  for i, j in ((0, 1), (0, 2), (1, 2)):
    pairs = np.bincount((when[:, i] - 1) * steps + when[:, j] - 1, minlength=16)
    assert stats.chisquare(pairs).pvalue > ALPHA
  assert (when[:-1] == when[1:]).mean() < 0.4  # Passes are independent.


def test_a_sample_is_a_pure_function_of_key_and_step():
  release = _release([[30] * 20] * 40, (P(0.3), F(2), F(3)))
  first = numpy_sampler.sample(KEY, release, 3)
  again = numpy_sampler.sample(KEY, release, np.int64(3))
  np.testing.assert_array_equal(first[0], again[0])
  other = numpy_sampler.secret_key()
  for key, step in ((KEY, 4), (other, 3)):
    assert not np.array_equal(
        first[0], numpy_sampler.sample(key, release, step)[0]
    )
  assert len(other) == 16 and other != numpy_sampler.secret_key()


_EPISODE = dict(way=2, shot=1, query=2)


@pytest.mark.parametrize(
    "tree, stages, episode, short",
    [
        ([[4] * 3] * 5, (P(0.5), F(2), F(3)), plan.Episode(**_EPISODE), False),
        (
            [[4, 2, 3], [4, 5], [1], []],
            (P(0.7), F(2), F(3)),
            plan.Episode(**_EPISODE),
            True,
        ),
        (
            [[4] * 3] * 5,
            (F(2), F(2), F(3)),
            plan.Episode(**_EPISODE, form="disjoint"),
            False,
        ),
        (
            [[4] * 3] * 5,
            (F(1), F(2), F(3)),
            plan.Episode(**_EPISODE, form="independent", tasks=4),
            False,
        ),
        (  # Alphabets are the classes.
            [[4] * 3] * 5,
            (F(2), F(3), F(1)),
            plan.Episode(**_EPISODE, form="disjoint", classes=LEVELS[0]),
            False,
        ),
    ],
    ids=["unit", "short", "disjoint", "independent", "across"],
)
def test_tasks_are_those_of_the_jax_sampler(tree, stages, episode, short):
  release = _release(tree, stages, episode=episode, short=short)
  seen = 0
  for step in range(10):
    indices, mask = numpy_sampler.sample(KEY, release, step)
    rows, filled = sampling.task_indices(
        jnp.asarray(indices),
        jnp.asarray(mask),
        release.hierarchy,
        release.plan,
    )
    found = numpy_sampler.task_rows(KEY, release, step)
    np.testing.assert_array_equal(found, np.asarray(rows)[np.asarray(filled)])
    seen += len(found)
  assert seen


def test_noise_is_normal_and_of_key_step_and_name():
  first = numpy_sampler.noise(KEY, 3, "w", (200, 100))
  assert first.dtype == np.float32 and first.shape == (200, 100)
  assert stats.kstest(first.ravel(), "norm").pvalue > ALPHA
  np.testing.assert_array_equal(
      first, numpy_sampler.noise(KEY, 3, "w", (200, 100))
  )
  for key, step, name in (
      (KEY, 4, "w"), (KEY, 3, "b"), (bytes(16), 3, "w")
  ):
    other = numpy_sampler.noise(key, step, name, (200, 100))
    correlation = np.corrcoef(first.ravel(), other.ravel())[0, 1]
    assert abs(correlation) < 5 / 20_000**0.5
  with pytest.raises(ValueError, match="16 secret bytes"):
    numpy_sampler.noise(b"", 0, "w", ())


@pytest.mark.parametrize(
    "key, step, match",
    [
        (bytes(8), 0, "16 secret bytes.*secret_key"),
        (7, 0, "16 secret bytes"),
        (KEY, -1, "step=-1"),
        (KEY, 1.5, "step=1.5"),
        (KEY, True, "step=True"),
    ],
)
def test_wrong_keys_and_steps_are_named(key, step, match):
  with pytest.raises(ValueError, match=match):
    numpy_sampler.sample(key, _release(4, (F(1),), levels=("image",)), step)


def test_batches_are_the_rows_of_the_steps():
  release = _release(
      [[4] * 3] * 5, (P(0.3), F(2), F(3)), episode=plan.Episode(**_EPISODE)
  )
  batches = numpy_sampler.BatchSampler(release, key=KEY, steps=30)
  found = list(batches)
  assert len(found) == len(batches) == 30
  for step, rows in enumerate(found):
    tasks = numpy_sampler.task_rows(KEY, release, step)
    assert rows == tasks.ravel().tolist() and len(rows) == len(tasks) * 6
  assert [] in found  # A step all the same.
  later = numpy_sampler.BatchSampler(
      release, key=KEY, steps=30, first_step=20
  )
  assert list(later) == found[20:] and len(later) == 10
  examples = _release(100, (P(0.1),), levels=("image",))
  (rows,) = numpy_sampler.BatchSampler(examples, key=KEY, steps=1)
  assert len(set(rows)) == len(rows)
  with pytest.raises(ValueError, match="steps=0"):
    numpy_sampler.BatchSampler(release, key=KEY, steps=0)


def test_every_order_is_equally_likely():
  indices, mask = _draw(_release(4, (A(),), levels=("image",)))
  assert mask.all()
  orders, times = np.unique(indices, axis=0, return_counts=True)
  assert len(orders) == 24 and stats.chisquare(times).pvalue > ALPHA


def test_independent_tasks_are_independent():
  episode = plan.Episode(1, 1, 1, form="independent", tasks=2)
  release = _release(
      [2] * 4, (F(1), F(2)), levels=("c", "image"), episode=episode
  )
  pairs = np.zeros(16, int)
  for step in range(800):
    (one,), (two,) = numpy_sampler.task_rows(KEY, release, step)[..., 0] // 2
    pairs[one * 4 + two] += 1
  assert stats.chisquare(pairs).pvalue > ALPHA

"""Numbers that are drawn, against whole numbers; and the sampler without JAX.

The sampler without JAX takes the same plans and has the same distribution.
"""

import bisect
import itertools
import operator
import pickle
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp.plan import sampler_error
from episodic_dp.sampling import draws
from episodic_dp.sampling import numpy_sampler
from tests import frequencies
from tests import plans
from tests.sampling import oracle

P = plan.Poisson
RANGES = (1, 2, 3, 5, 7, 1150, 65535, 65536, 65537, 10**8, 2**31 - 1)


def _number(words):
  return int.from_bytes(np.asarray(words, ">u4").tobytes(), "big")


def _words(value):
  return [(value >> shift) & 0xFFFFFFFF for shift in (96, 64, 32, 0)]


@pytest.mark.parametrize("n", RANGES)
def test_uniform_equals_big_integers(n):
  rng = np.random.default_rng(n)
  bits = rng.integers(0, 2**32, (200, 4), np.uint32)
  # Words of all zeros and all ones carry in every possible way.
  bits[100:] = np.where(rng.random((100, 4)) < 0.5, 0, 2**32 - 1)
  bits[0], bits[1] = 0, 2**32 - 1
  # The first number that gives a value, ceil(v 2^128 / n), and the one below.
  for i, value in enumerate({1, n // 2 + 1, n - 1} - {0, n}):
    start = -(-(value << 128) // n)
    bits[2 * i + 2], bits[2 * i + 3] = _words(start - 1), _words(start)
  got = jax.jit(draws.uniform_below)(jnp.asarray(bits), n)
  assert got.dtype == jnp.int32
  np.testing.assert_array_equal(got, [_number(b) * n >> 128 for b in bits])
  assert got[0] == 0 and got[1] == n - 1


_draw = jax.jit(draws.draw_ordered, static_argnums=2)


def _shuffle(targets, n):
  """Sequential Fisher-Yates; entries of the array are made when touched."""
  array, out = {}, []
  for i, j in enumerate(targets):
    if i < n:
      array[i], array[j] = array.get(j, j), array.get(i, i)
    out.append(array.get(i, i))
  return out


@pytest.mark.parametrize("way", ["_compare", "_sort"])
@pytest.mark.parametrize("slots", [1, 2, 7, 100])
@pytest.mark.few(3)
def test_equals_a_sequential_shuffle(way, slots, monkeypatch):
  monkeypatch.setattr(
      draws, "_MAX_COMPARED", slots if way == "_compare" else slots - 1
  )
  rng = np.random.default_rng(slots)
  rows, want = [], []
  for n in (slots, slots + 1, slots + 3, 2 * slots, 5 * slots, 10**6):
    for _ in range(50):
      rows.append(rng.integers(np.arange(slots), n))
      want.append(_shuffle(rows[-1].tolist(), n))
  # Chains as long and as tangled as they come.
  forward = np.minimum(np.arange(slots) + 1, slots - 1)
  for row in (forward, np.full(slots, slots - 1), np.arange(slots)):
    rows.append(row)
    want.append(_shuffle(row.tolist(), slots))
  resolve = jax.jit(lambda targets: draws.resolve_swaps(targets))
  got = resolve(jnp.asarray(np.stack(rows), jnp.int32))
  np.testing.assert_array_equal(got, want)


def test_all_possible_targets_give_all_orders_equally_often():
  n = 5
  rows = list(itertools.product(*(range(i, n) for i in range(n))))
  got = jax.jit(draws.resolve_swaps)(jnp.asarray(rows, jnp.int32))
  orders = {tuple(r) for r in got.tolist()}
  assert len(rows) == 120 and orders == set(itertools.permutations(range(n)))


def _search(bits, children, p):
  """Counts of families of these numbers of children."""
  tables = sampler_error.count_tables(P(p), np.asarray(children))
  children = np.broadcast_to(children, len(bits))
  found = jax.jit(lambda *a: draws.draw_counts(*a, tables))(
      jnp.asarray(bits, jnp.uint32), children
  )
  assert found.dtype == jnp.int32
  return np.asarray(found)


@pytest.mark.parametrize("p", [0.004, 0.3, 0.5, 1.0])
def test_counts_equal_a_search_in_whole_numbers(p):
  """In both samplers, at and around every threshold of several tables."""
  sizes = [0, 1, 2, 5, 20, 300, 10**5]
  rng = np.random.default_rng(0)
  numbers, children, want = [], [], []
  for n in sizes:
    table = sampler_error.binomial_table(n, p)
    values = {0, 2**128 - 1}
    values |= {int.from_bytes(rng.bytes(16), "big") for _ in range(20)}
    for t in table.thresholds:
      values |= {t - 1, t, min(t + 1, 2**128 - 1)}
    for value in sorted(values - {-1}):
      numbers.append(value)
      children.append(n)
      want.append(table.first + bisect.bisect_right(table.thresholds, value))
    assert want[-1] <= table.capacity
  found = _search([_words(value) for value in numbers], children, p)
  np.testing.assert_array_equal(found, want)
  halves = [(value >> 64, value & (2**64 - 1)) for value in numbers]
  given = _generator(np.asarray(halves, np.uint64))
  np.testing.assert_array_equal(
      numpy_sampler._counts(given, P(p), np.asarray(children)), want
  )


# The sampler without JAX ------------------------------------------------------

KEY = bytes(range(16))


def _release(tree, stages, *, levels=oracle.LEVELS, episode=None, short=False):
  whole = episode is None or episode.form == "unit"
  unit = levels[0] if whole else plan.EPISODE
  return plans.release(
      plans.nested(levels, tree),
      plans.sampling(*stages, episode=episode, allow_short_units=short), unit,
      clip_norm=1.0,
  )


def _halves(bits):
  """Return bits for the JAX sampler: uint32[..., 4], high words first."""
  halves = np.stack([bits >> np.uint64(32), bits & np.uint64(2**32 - 1)], -1)
  return jnp.asarray(halves.reshape(len(bits), 4).astype(np.uint32))


def _generator(bits):
  """A generator of given bits, uint64[n, 2]."""
  return types.SimpleNamespace(random_raw=lambda count: bits.ravel()[:count])


def _bits(count):
  """Random numbers of 128 bits, the extremes among them."""
  bits = np.random.Philox(0).random_raw(2 * count).reshape(count, 2)
  ends = (0, 2**64 - 1)
  bits[:4] = np.asarray([*itertools.product(ends, ends)], np.uint64)
  return bits


def test_uniform_numbers_are_those_of_the_jax_sampler():
  bits = _bits(400)
  n = np.asarray([1, 2, 7, 2**16, 2**31 - 1])[np.arange(400) % 5]
  np.testing.assert_array_equal(
      numpy_sampler._uniform_below(bits, n),
      draws.uniform_below(_halves(bits), jnp.asarray(n, jnp.int32)),
  )


@pytest.mark.parametrize(
    "slots,children",
    [(1, 1), (4, 4), (4, 9), (4, 2), (4, 0), (5, 40), (40, 40), (40, 13)],
)
@pytest.mark.few(3)
def test_orders_are_those_of_a_sequential_shuffle(slots, children):
  """Compare with the shuffle of the sampler without JAX."""
  families, take = 50, min(children, slots)
  bits = _bits(families * slots)
  given = bits.reshape(families, slots, 2)[:, :take].reshape(-1, 2)
  found = numpy_sampler._draw_ordered(
      _generator(given),
      np.full(families, children),
      np.full(families, take),
  )
  got = _draw(_halves(bits).reshape(families, slots, 4), children, slots)
  assert got.dtype == jnp.int32
  np.testing.assert_array_equal(got[:, :take], found.reshape(families, take))
  # With too few children: all of them, then padding that holds its position.
  assert (np.asarray(got)[:, take:] == np.arange(take, slots)).all()
  assert all(len(set(row)) == slots for row in got.tolist())


def test_a_pass_draws_every_unit_once_and_steps_are_uniform():
  steps, units = 4, 3
  stages = (plan.RandomAllocation(steps), 1)
  release = _release([2] * units, stages, levels=("p", "image"))
  when = np.zeros((300, units), int)
  for step in range(300 * steps):
    indices, mask = numpy_sampler.sample(KEY, release, step)
    drawn = indices[mask] // 2
    assert len(set(drawn)) == len(drawn)
    when[step // steps, drawn] += 1 + step % steps
  # Each once in a pass: a sum of two would not show it, their number does.
  assert ((when >= 1) & (when <= steps)).all()
  for i, j in ((0, 1), (0, 2), (1, 2)):
    frequencies.check_pairs(when[:, i] - 1, when[:, j] - 1, steps)
  assert (when[:-1] == when[1:]).mean() < 0.4  # Passes are independent.


def test_a_sample_is_a_pure_function_of_key_and_step():
  release = _release([[30] * 20] * 40, (0.3, 2, 3))
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
EVEN = [[4] * 3] * 5


@pytest.mark.parametrize(
    "tree, stages, episode, short",
    [
        (EVEN, (0.5, 2, 3), plan.Episode(**_EPISODE), False),
        (
            [[4, 2, 3], [4, 5], [1], []],
            (0.7, 2, 3),
            plan.Episode(**_EPISODE),
            True,
        ),
        (
            EVEN,
            (2, 2, 3),
            plan.Episode(**_EPISODE, form="disjoint"),
            False,
        ),
        (
            EVEN,
            (1, 2, 3),
            plan.Episode(**_EPISODE, form="independent", tasks=4),
            False,
        ),
        (  # Alphabets are the classes.
            EVEN,
            (2, 3, 1),
            plan.Episode(**_EPISODE, form="disjoint", classes=oracle.LEVELS[0]),
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
  frequencies.check_normal(first)
  np.testing.assert_array_equal(
      first, numpy_sampler.noise(KEY, 3, "w", (200, 100))
  )
  others = [
      numpy_sampler.noise(*source, (200, 100))
      for source in ((KEY, 4, "w"), (KEY, 3, "b"), (bytes(16), 3, "w"))
  ]
  frequencies.check_unrelated(first, *others)
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
    numpy_sampler.sample(key, _release(4, (1,), levels=("image",)), step)


def test_batches_are_the_rows_of_the_steps():
  release = _release(EVEN, (0.3, 2, 3), episode=plan.Episode(**_EPISODE))
  batches = numpy_sampler.BatchSampler(release, key=KEY, steps=30)
  found = list(batches)
  assert len(found) == len(batches) == 30
  for step, rows in enumerate(found):
    tasks = numpy_sampler.task_rows(KEY, release, step)
    assert rows == tasks.ravel().tolist() and len(rows) == len(tasks) * 6
  assert [] in found  # A step all the same.
  # As PyTorch's loader and its workers do.
  collate = numpy_sampler.none_if_empty(operator.itemgetter(0))
  collate = pickle.loads(pickle.dumps(collate))
  assert [collate(rows) for rows in found] == [
      rows[0] if rows else None for rows in found
  ]
  later = numpy_sampler.BatchSampler(
      release, key=KEY, steps=30, first_step=20
  )
  assert list(later) == found[20:] and len(later) == 10
  examples = _release(100, (0.1,), levels=("image",))
  (rows,) = numpy_sampler.BatchSampler(examples, key=KEY, steps=1)
  assert len(set(rows)) == len(rows)
  with pytest.raises(ValueError, match="steps=0"):
    numpy_sampler.BatchSampler(release, key=KEY, steps=0)

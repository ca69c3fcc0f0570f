"""Clipping, the sum, the noise, and clip norms that adapt.

Norms are exact and the spread is as announced; a step of adaptive clipping
releases what costs z, and quantiles are found.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from episodic_dp import plan
from episodic_dp import private
from episodic_dp.private import clipping
from episodic_dp.private import noise
from episodic_dp.private import quantile
from tests import fake_learner
from tests import frequencies
from tests import plans
from tests.task_sums import flat

pytestmark = pytest.mark.optimized

CLIP = {
    by: jax.jit(
        lambda tree, norm, by=by: private.clip(tree, norm, by), static_argnums=1
    )
    for by in ("global", "layer")
}


def exact_norm(tree) -> float:
  return float(np.linalg.norm(flat(tree)))


def tree(scale=1.0, seed=0, sizes=((70, 9), (13,), (1, 2, 3))):
  rng = np.random.default_rng(seed)
  return {
      str(i): (scale * rng.standard_normal(size)).astype(np.float32)
      for i, size in enumerate(sizes)
  }


def spoiled(value):
  result = tree()
  result["1"][4] = value
  return result


CASES = {
    "small": tree(1e-3),
    "large": tree(1e3),
    "square overflows": tree(1e25),
    "nearly overflows": tree(1e37),
    "square underflows": tree(1e-25),
    "subnormal": tree(1e-40),
    "zero": tree(0.0),
    "nan": spoiled(np.nan),
    "inf": spoiled(np.inf),
    "minus inf": spoiled(-np.inf),
    "largest": spoiled(np.finfo(np.float32).max),
    "equal entries": {"a": np.ones(4096, np.float32)},
}


@pytest.mark.parametrize("by", ["global", "layer"])
@pytest.mark.parametrize("norm", [1e-3, 1.0, 75.0])
@pytest.mark.parametrize("name", CASES)
def test_norm_is_at_most_the_clip_norm(name, norm, by):
  clipped = CLIP[by](CASES[name], norm)
  assert exact_norm(clipped.gradient) <= norm
  finite = all(np.isfinite(leaf).all() for leaf in CASES[name].values())
  assert clipped.finite == finite
  if not finite:
    assert exact_norm(clipped.gradient) == 0


def test_direction_is_kept_and_small_gradients_are_untouched():
  for name, rtol in (("small", 0), ("square overflows", 1e-4)):
    gradient = flat(CASES[name])
    result = CLIP["global"](CASES[name], 75.0)
    expected = gradient * min(1.0, 75.0 / exact_norm(gradient))
    np.testing.assert_allclose(flat(result.gradient), expected, rtol=rtol)
    assert result.clipped == (name != "small")


def test_layers_are_clipped_one_by_one():
  gradient = tree() | {"1": 1e-3 * np.ones(13, np.float32)}
  result = CLIP["layer"](gradient, 1.0).gradient
  bound = 1 / math.sqrt(3)
  np.testing.assert_array_equal(result["1"], gradient["1"])
  for key in ("0", "2"):
    np.testing.assert_allclose(exact_norm(result[key]), bound, rtol=1e-4)
    assert exact_norm(result[key]) <= bound


@pytest.mark.parametrize("by", ["global", "layer"])
@pytest.mark.parametrize("name", CASES)
def test_infinite_clip_norm_changes_finite_gradients_in_no_bit(name, by):
  gradient = CASES[name]
  result = CLIP[by](gradient, math.inf)
  expected = flat(gradient) if result.finite else 0.0
  np.testing.assert_array_equal(flat(result.gradient), expected)
  assert not result.clipped


def test_half_precision_gradients_are_clipped_in_float32():
  gradient = jnp.full(1000, 300.0, jnp.bfloat16)
  result = private.clip(gradient, 1.0).gradient
  assert result.dtype == jnp.float32 and 1 - 1e-4 < exact_norm(result) <= 1


@pytest.mark.parametrize("count", [1, 5, 16, 17, 37, 300])
def test_add_up_is_the_sum_over_the_first_axis(count):
  units = {
      "a": np.arange(count * 6, dtype=np.float32).reshape(count, 2, 3),
      "b": np.arange(count, dtype=np.float32) % 7,
  }
  total = clipping.sum_units(units)
  for name, unit in units.items():
    np.testing.assert_array_equal(total[name], unit.sum(0))  # Whole numbers.


SIZE = 100_001


def test_is_standard_normal():
  x = np.asarray(noise.standard_normal(jax.random.key(0), (SIZE,)), np.float64)
  frequencies.check_normal(x)
  # The two halves come from the same radii and other angles.
  frequencies.check_unrelated(x[: SIZE // 2], x[SIZE // 2 + 1 :])
  for bound in (3.0, 4.0):
    beyond = int(np.sum(np.abs(x) > bound))
    expected = 2 * stats.norm.sf(bound) * SIZE
    assert stats.binomtest(beyond, SIZE, expected / SIZE).pvalue > 1e-6


def test_tails_follow_the_words_to_the_last_bit():
  """The radius is the inverse of exp(-r^2 / 2) at the word's fraction."""
  zeros = np.arange(1, 63)
  words = [1 << (63 - int(z)) for z in zeros]
  high = jnp.asarray([w >> 32 for w in words], jnp.uint32)
  low = jnp.asarray([w & 0xFFFFFFFF for w in words], jnp.uint32)
  x, y = noise._box_muller(high, low, jnp.zeros(len(words), jnp.uint32))
  mass = (np.asarray(words, np.float64) + 0.5) * 2.0**-64
  np.testing.assert_allclose(x**2 / 2, -np.log(mass), rtol=1e-5)
  np.testing.assert_array_equal(y, 0)
  assert float(x.max()) > 9.2
  # The other end: the same words above one half give radii near 0.
  x, _ = noise._box_muller(high | np.uint32(1 << 31), low, jnp.zeros_like(high))
  np.testing.assert_allclose(x**2 / 2, -np.log1p(-mass), rtol=1e-5)


def test_scales_and_adds_to_every_leaf_alone():
  total = {"a": jnp.full((50, 40), 3.0), "b": jnp.full((50, 40), -1.0)}
  add = jax.jit(private.add_noise, static_argnums=2)
  noised = add(jax.random.key(1), total, 5.0)
  drawn = [(noised[k] - total[k]) / 5 for k in total]
  for values in drawn:
    frequencies.check_normal(values)
  other = add(jax.random.key(2), total, 5.0)["a"]
  frequencies.check_unrelated(*drawn, other)
  again = add(jax.random.key(1), total, 5.0)
  np.testing.assert_array_equal(again["a"], noised["a"])


def test_no_noise_changes_nothing():
  total = {"a": jnp.arange(3.0)}
  assert private.add_noise(jax.random.key(0), total, 0.0) is total


@pytest.mark.slow
def test_a_sum_of_four_normals_is_as_normal_as_one():
  total, key = {"a": jnp.zeros(SIZE), "b": jnp.zeros(SIZE)}, jax.random.key(4)
  found = jax.jit(lambda key: private.add_noise(key, total, 3.0, terms=4))(key)
  for values in found.values():
    frequencies.check_normal(values / 3)
  # It is the sum of four independent draws, none of them that of one term.
  drawn = [
      noise.standard_normal(jax.random.fold_in(key, j), (2 * SIZE,))
      for j in range(4)
  ]
  np.testing.assert_allclose(flat(found), 1.5 * sum(drawn), atol=1e-5)
  frequencies.check_unrelated(*drawn)
  one = private.add_noise(key, total, 3.0)["a"]
  frequencies.check_unrelated(found["a"], found["b"], one)


@pytest.mark.slow
def test_every_array_can_have_a_spread_of_its_own():
  key, zeros = jax.random.key(5), [jnp.zeros(40), jnp.zeros((3, 2))]
  found = private.add_noise(key, zeros, jnp.array([0.5, 2.0]))
  for i, spread in enumerate((0.5, 2.0)):
    same = private.add_noise(key, zeros, spread)
    np.testing.assert_array_equal(found[i], same[i])
    shared = private.add_noise(key, zeros, jnp.array([spread]))
    np.testing.assert_array_equal(found[i], shared[i])


# Clip norms that adapt --------------------------------------------------------

SGD = optax.sgd(1.0)
SIZES = ((40, 5), (13,), (1, 2, 3))
OPTIONS = plans.QUANTILE | dict(
    noise_multiplier=1.5, clip_norm=0.7, count_noise=1.0
)
CLIP_AT = {
    by: jax.jit(lambda tree, bounds, by=by: private.clip(tree, bounds, by))
    for by in ("global", "layer")
}


def mechanism(**options):
  return plan.Mechanism(**dict(clip_unit="task") | OPTIONS | options)


def arrays_of(scale, seed=0):
  """Arrays whose norms are `scale` times 1, 2 and 3."""
  rng = np.random.default_rng(seed)
  arrays = [rng.standard_normal(size) for size in SIZES]
  return [
      np.float32(scale * (i + 1) * a / np.linalg.norm(a))
      for i, a in enumerate(arrays)
  ]


def in_noise_units(m, bounds, gradient):
  """Return one clip unit's part of a release, in deviations of its noise."""
  clipped = CLIP_AT[m.clip_by](gradient, bounds)
  seen = quantile.count_within(
      jax.tree.map(lambda a: a[None], clipped), jnp.ones(1, bool)
  )
  spreads = quantile.stddev(m.gradient_noise_multiplier, bounds)
  spreads = np.broadcast_to(spreads, len(gradient))
  parts = [flat(a) / s for a, s in zip(clipped.gradient, spreads)]
  count = m.count_noise * math.sqrt(len(bounds))
  return np.concatenate([*parts, np.asarray(seen, np.float64) / count])


@pytest.mark.parametrize("by", ["global", "layer"])
@pytest.mark.parametrize("z,sigma", [(1.5, 1.0), (0.3, 4.0), (4.0, 2.001)])
def test_the_pair_of_a_step_is_one_mechanism_of_multiplier_z(by, z, sigma):
  m = mechanism(noise_multiplier=z, count_noise=sigma, clip_by=by)
  bounds = quantile.init(m, arrays_of(1.0))
  bounds = bounds * jnp.array([1.0, 5.0, 0.1])[: len(bounds)]
  scales = (0, 1e-3, 0.1, 1, 10, 1e6)
  units = [arrays_of(scale, seed) for seed, scale in enumerate(scales)]
  moves = [in_noise_units(m, bounds, unit) for unit in units]
  bound = 1 / z * (1 + 1e-6)
  for first in moves:
    assert np.linalg.norm(first) <= bound
    for second in moves:
      assert np.linalg.norm(first - second) <= 2 * bound
  # Reached: by one unit far outside, and by its exchange for the opposite one
  # that lies just within, for which both halves move twice as far.
  outside = in_noise_units(m, bounds, arrays_of(1e6))
  each = np.broadcast_to(bounds, len(SIZES))
  scale = each[0] / math.sqrt(14) if by == "global" else None
  just = [
      np.float32(-(1 - 1e-4) * a * (scale or each[i] / (i + 1)))
      for i, a in enumerate(arrays_of(1.0))
  ]
  within = in_noise_units(m, bounds, just)
  assert within[-1] > 0 > outside[-1]
  assert np.linalg.norm(outside) > 1 / z * (1 - 1e-3)
  assert np.linalg.norm(within - outside) > 2 / z * (1 - 1e-3)


def test_units_that_are_not_finite_count_as_nothing():
  bad = arrays_of(1.0)
  bad[1][0] = np.nan
  m = mechanism()
  assert not in_noise_units(m, quantile.init(m, bad), bad).any()


@pytest.mark.parametrize("gamma", [0.2, 0.5, 0.9])
def test_the_quantile_is_found_and_followed(gamma):
  """Two arrays of different scales, which shrink fivefold at once."""
  m = mechanism(
      clip_quantile=gamma, clip_by="layer", count_noise=10.0, clip_norm=1.0
  )
  scales = np.array([1.0, 0.1])

  @jax.jit
  def step(bounds, norms, mask, key):
    finite = jnp.ones(len(norms), bool)
    within = norms <= bounds[None]
    units = clipping.Clipped(None, None, None, finite, norms, within)
    seen = quantile.count_within(units, mask)
    return quantile.update(m, bounds, seen, key, 100.0)

  rng = np.random.default_rng(2)
  bounds, late = quantile.init(m, [0.0, 0.0]), {1.0: [], 0.2: []}
  for t in range(400):
    shrunk = 1.0 if t < 200 else 0.2
    norms = shrunk * scales * np.exp(rng.standard_normal((150, 2)))
    mask = np.arange(150) < rng.binomial(1000, 0.1)  # Expected: 100.
    bounds = step(bounds, np.float32(norms), mask, jax.random.key(t))
    if t % 200 >= 100:
      late[shrunk].append(np.asarray(bounds) / (shrunk * scales))
  for found in late.values():
    shares = stats.norm.cdf(np.log(found)).mean(0)
    np.testing.assert_allclose(shares, gamma, atol=0.03)


# From here on whole steps: compiling them takes the longest.
@pytest.mark.usefixtures("quickly_compiled")
def test_the_noise_of_a_step_is_that_of_the_pair(make_run):
  """Measured: on the gradients z' C, on the count sigma_b, independent."""
  run = make_run(8, 5, **OPTIONS)._replace(
      learner=fake_learner.Still()
  )
  step, state = run.step(SGD, microbatch_size=5), run.init(SGD)
  norms, ratios, logs = [float(state.clip[0])], [], []
  before = np.zeros(1500)
  for _ in range(150):
    state, metrics = step(state)
    now = flat(state.params)
    assert metrics["clip_norm"] == np.float32(norms[-1])
    assert not any(name.startswith("private") for name in metrics)
    ratios.append((before - now) * 5 / norms[-1])
    norms.append(float(state.clip[0]))
    logs.append(math.log(norms[-1] / norms[-2]))
    before = now
  np.testing.assert_allclose(
      np.std(ratios), run.mechanism.gradient_noise_multiplier, rtol=0.01
  )
  # All five norms, of zero, are within: the share is 1.
  counts = (np.array(logs) / -0.2 + 0.5 - 1) * 5
  np.testing.assert_allclose(counts.mean(), 0, atol=0.3)
  np.testing.assert_allclose(counts.std(), 1.0, rtol=0.2)
  # Nor is it the noise of any coordinate over again.
  own = np.corrcoef(np.array(ratios)[:, ::300].T, counts)[-1, :-1]
  assert np.abs(own).max() < 0.35


WINDOW = dict(clipping="percentile_window", clip_percentile=60.0)


def test_the_window_is_a_plain_replay_and_never_rises():
  size, groups = 10, 2
  m = plan.Mechanism(
      clip_unit="task", noise_multiplier=1.0, clip_norm=1.5, clip_by="layer",
      clip_window=size, **WINDOW,
  )
  rng = np.random.default_rng(3)
  window = quantile.init(m, [0.0] * groups)
  bounds = np.full(groups, 1.5 / math.sqrt(groups))
  history, fresh, rises, changes = np.zeros((0, groups)), 0, 0, 0
  for t in range(40):
    mask = rng.random(14) < 0.4
    norms = np.exp(rng.standard_normal((14, groups)) - 0.02 * t)
    norms = np.float32(norms)
    window = quantile.push(m, window, jnp.where(mask[:, None], norms, -1.0))
    history = np.concatenate([history, norms[mask]])
    fresh += mask.sum()
    if len(history) >= size and fresh >= size // 2:
      fresh %= size // 2
      found = np.percentile(history[-size:], 60.0, axis=0)
      rises += (found > bounds).any()
      changes += (found < bounds).any()
      bounds = np.minimum(bounds, found)
    np.testing.assert_allclose(window.bounds, bounds, rtol=1e-5)
    kept = np.asarray(window.norms)[-len(history[-size:]):]
    np.testing.assert_array_equal(kept, np.float32(history[-size:]))
  assert rises > 3 and changes > 3


@pytest.mark.slow
@pytest.mark.usefixtures("quickly_compiled")
def test_a_window_in_a_step_holds_the_norms_of_its_tasks(make_run):
  """Data on the host, in blocks; neither a norm nor C is a public metric."""
  run = make_run(
      8, 4, clip_window=8, clip_norm=3.0, noise_multiplier=0.1,
      **WINDOW,
  )
  run.dataset.resident = False
  run = run._replace(
      learner=dataclasses.replace(run.learner, inner_steps=1, order="first")
  )
  step = run.step(SGD, microbatch_size=3, diagnostics=True)
  state, norms, used = run.init(SGD), [], []
  step.compile(state)
  for _ in range(4):
    state, metrics = step(state)
    norms.append(float(metrics["private/norm"]))
    used.append(float(metrics["private/clip_norm"]))
    assert {n for n in metrics if "/" not in n} == {"step", "update_norm"}
    assert "private/norms" not in metrics
  held = np.asarray(state.clip.norms)
  np.testing.assert_allclose(held.reshape(2, 4).mean(1), norms[-2:], rtol=1e-5)
  assert used[:2] == [3.0, 3.0]  # The window is full after two lots.
  assert used == sorted(used, reverse=True)

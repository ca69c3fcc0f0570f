"""Clip norms that adapt: what a step releases costs z, quantiles are found."""

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
from episodic_dp.private import adaptive
from episodic_dp.private import keys
from tests import fake_learner

SGD = optax.sgd(1.0)
SIZES = ((40, 5), (13,), (1, 2, 3))
CLIP = {
    by: jax.jit(lambda tree, bounds, by=by: private.clip(tree, bounds, by))
    for by in ("global", "layer")
}


def quantile(**options):
  settings = dict(
      clip_unit="task", noise_multiplier=1.5, clip_norm=0.7,
      clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
      count_noise=1.0,
  )
  return plan.Mechanism(**(settings | options))


def window(**options):
  settings = dict(
      clip_unit="task", noise_multiplier=1.0, clip_norm=2.0,
      clipping="percentile_window", clip_percentile=60.0, clip_window=10,
  )
  return plan.Mechanism(**(settings | options))


def tree(scale, seed=0):
  """Arrays whose norms are `scale` times 1, 2 and 3."""
  rng = np.random.default_rng(seed)
  arrays = [rng.standard_normal(size) for size in SIZES]
  return [
      np.float32(scale * (i + 1) * a / np.linalg.norm(a))
      for i, a in enumerate(arrays)
  ]


def in_noise_units(mechanism, clip, gradient):
  """What one clip unit adds to a release, in deviations of its noise."""
  clipped = CLIP[mechanism.clip_by](gradient, clip.bounds)
  seen = adaptive.observe(
      adaptive.begin(clip),
      jax.tree.map(lambda a: a[None], clipped),
      jnp.ones(1, bool),
  )
  spreads = np.broadcast_to(adaptive.stddev(mechanism, clip), len(gradient))
  count = mechanism.count_noise * math.sqrt(len(clip.bounds))
  parts = [
      np.asarray(a, np.float64).ravel() / s
      for a, s in zip(clipped.gradient, spreads)
  ]
  return np.concatenate([*parts, np.asarray(seen, np.float64) / count])


@pytest.mark.parametrize("by", ["global", "layer"])
@pytest.mark.parametrize("z,sigma", [(1.5, 1.0), (0.3, 4.0), (4.0, 2.001)])
def test_the_pair_of_a_step_is_one_mechanism_of_multiplier_z(by, z, sigma):
  mechanism = quantile(noise_multiplier=z, count_noise=sigma, clip_by=by)
  clip = adaptive.init(mechanism, tree(1.0))
  clip = clip._replace(bounds=clip.bounds * jnp.array([1.0, 5.0, 0.1])[
      : len(clip.bounds)
  ])
  units = [tree(s, seed) for seed, s in enumerate((0, 1e-3, 0.1, 1, 10, 1e6))]
  moves = [in_noise_units(mechanism, clip, unit) for unit in units]
  bound = 1 / z * (1 + 1e-6)
  for first in moves:
    assert np.linalg.norm(first) <= bound
    for second in moves:
      assert np.linalg.norm(first - second) <= 2 * bound
  # Reached: by one unit far outside, and by its exchange for the opposite one
  # that lies just within, for which both halves move twice as far.
  outside = in_noise_units(mechanism, clip, tree(1e6))
  bounds = np.broadcast_to(clip.bounds, len(SIZES))
  scale = bounds[0] / math.sqrt(14) if by == "global" else None
  just = [
      np.float32(-(1 - 1e-4) * a * (scale or bounds[i] / (i + 1)))
      for i, a in enumerate(tree(1.0))
  ]
  within = in_noise_units(mechanism, clip, just)
  assert within[-1] > 0 > outside[-1]
  assert np.linalg.norm(outside) > 1 / z * (1 - 1e-3)
  assert np.linalg.norm(within - outside) > 2 / z * (1 - 1e-3)


def test_a_smaller_share_of_the_noise_for_the_count_costs_more():
  """The split is exact: without its count the gradients cost less than z."""
  mechanism = quantile(noise_multiplier=2.0, count_noise=1.25)
  first = 1 / mechanism.gradient_noise_multiplier**2
  assert first + 1 / (2 * 1.25) ** 2 == pytest.approx(1 / 2.0**2, rel=1e-12)
  assert mechanism.gradient_noise_multiplier == pytest.approx(10 / 3)


def test_units_that_are_not_finite_count_as_nothing():
  mechanism = quantile()
  clip = adaptive.init(mechanism, tree(1.0))
  bad = tree(1.0)
  bad[1][0] = np.nan
  assert not in_noise_units(mechanism, clip, bad).any()


@pytest.mark.parametrize("by", ["global", "layer"])
def test_bounds_that_are_computed_are_kept_exactly(by):
  rng = np.random.default_rng(1)
  vectors = [
      rng.standard_normal((2000, *size)).astype(np.float32)
      for size in ((37, 3), (90,))
  ]
  vectors[0][::3] *= np.float32(1e15)
  groups = 1 if by == "global" else 2

  @jax.jit
  def clipped(bounds):
    return jax.vmap(lambda v: private.clip(v, bounds, by))(vectors)

  for bound in (1e-20, 3e-7, 0.1, 1.0, 7.3, 1e20):
    bounds = jnp.asarray(np.float32(bound) * np.arange(1, groups + 1))
    result = clipped(bounds)
    squares = np.stack(
        [
            np.sum(np.asarray(a, np.float64).reshape(2000, -1) ** 2, 1)
            for a in result.gradient
        ],
        axis=1,
    )
    if by == "global":
      squares = squares.sum(1, keepdims=True)
    norms = np.sqrt(squares)
    assert (norms <= np.asarray(bounds, np.float64)).all()
    scaled = ~np.asarray(result.within)
    assert (norms / bounds)[scaled].min(initial=1) > 1 - 1e-4
  with pytest.raises(ValueError, match="groups of arrays"):
    private.clip([v[0] for v in vectors], jnp.ones(3), by)


def units_of(norms):
  """Clip units of which all but the norms [units, groups] is left out."""
  def made(bounds):
    return private.Clipped(
        None, None, None, jnp.ones(len(norms), bool), norms, norms <= bounds
    )
  return made


@pytest.mark.parametrize("gamma", [0.2, 0.5, 0.9])
def test_the_quantile_is_found_and_followed(gamma):
  """Two arrays of different scales, which shrink fivefold at once."""
  mechanism = quantile(
      clip_quantile=gamma, clip_by="layer", count_noise=10.0, clip_norm=1.0
  )
  scales = np.array([1.0, 0.1])

  @jax.jit
  def step(clip, norms, mask, key):
    units = units_of(norms)(clip.bounds)
    seen = adaptive.observe(adaptive.begin(clip), units, mask)
    return adaptive.update(mechanism, clip, seen, key, 100.0)

  rng = np.random.default_rng(2)
  clip = adaptive.init(mechanism, [0.0, 0.0])
  late = {1.0: [], 0.2: []}
  for t in range(400):
    shrunk = 1.0 if t < 200 else 0.2
    norms = shrunk * scales * np.exp(rng.standard_normal((150, 2)))
    mask = np.arange(150) < rng.binomial(1000, 0.1)  # Expected: 100.
    clip = step(clip, np.float32(norms), mask, jax.random.key(t))
    if t % 200 >= 100:
      late[shrunk].append(np.asarray(clip.bounds) / (shrunk * scales))
  for bounds in late.values():
    shares = stats.norm.cdf(np.log(bounds)).mean(0)
    np.testing.assert_allclose(shares, gamma, atol=0.03)


def test_the_window_is_a_plain_replay_and_never_rises():
  mechanism = window(clip_by="layer", clip_norm=1.5)
  size, groups, chunk = 10, 2, 4

  @jax.jit
  def add(clip, seen, norms, mask):
    return adaptive.observe(seen, units_of(norms)(clip.bounds), mask)

  finish = jax.jit(
      lambda clip, seen: adaptive.update(
          mechanism, clip, seen, jax.random.key(0), 5.0
      )
  )
  rng = np.random.default_rng(3)
  clip = adaptive.init(mechanism, [0.0] * groups)
  bounds = np.full(groups, 1.5 / math.sqrt(groups))
  history, fresh, rises, changes = np.zeros((0, groups)), 0, 0, 0
  for t in range(40):
    lot = 5 if t < 20 else rng.integers(0, 14)
    seen = adaptive.begin(clip)
    for first in range(0, lot, chunk):
      norms = np.float32(
          np.exp(rng.standard_normal((chunk, groups)) - 0.02 * t)
      )
      mask = first + np.arange(chunk) < lot
      seen = add(clip, seen, norms, mask)
      history = np.concatenate([history, norms[mask]])
      fresh += mask.sum()
    clip = finish(clip, seen)
    if len(history) >= size and fresh >= size // 2:
      fresh %= size // 2
      found = np.percentile(history[-size:], 60.0, axis=0)
      rises += (found > bounds).any()
      changes += (found < bounds).any()
      bounds = np.minimum(bounds, found)
    np.testing.assert_allclose(clip.bounds, bounds, rtol=1e-5)
    assert (np.asarray(clip.norms)[-len(history[-size:]):]
            == history[-size:]).all()
  assert rises > 3 and changes > 3


class Still(fake_learner.FakeLearner):
  """A learner whose gradients are zero; counts how often it is traced."""

  def __init__(self):
    self.traced = 0

  def init(self, key):
    del key
    return {"a": jnp.zeros(900), "b": jnp.zeros((300, 2))}

  def loss(self, params, episode):
    del episode
    self.traced += 1
    return 0.0 * (params["a"].sum() + params["b"].sum())

  def predict(self, params, support, query_images):
    del params, support
    return jnp.zeros((query_images.shape[0], 3))


def test_the_noise_of_a_step_is_that_of_the_pair(make_run):
  """Measured: on the gradients z' C, on the count sigma_b, independent."""
  options = {
      name: getattr(quantile(), name)
      for name in ("noise_multiplier", "clip_norm", "clipping",
                   "clip_quantile", "clip_rate", "count_noise")
  }
  run = make_run(8, plan.FixedSize(5), **options)
  run = run._replace(learner=Still())
  step, state = run.step(SGD, microbatch_size=5), run.init(SGD)
  norms, ratios, logs = [float(state.clip.bounds[0])], [], []
  traced, before = None, np.zeros(1500)
  for _ in range(150):
    state, metrics = step(state)
    traced = traced or run.learner.traced
    now = np.concatenate([
        np.asarray(a, np.float64).ravel() for a in state.params.values()
    ])
    assert metrics["clip_norm"] == np.float32(norms[-1])
    assert not any(name.startswith("private") for name in metrics)
    ratios.append((before - now) * 5 / norms[-1])
    norms.append(float(state.clip.bounds[0]))
    logs.append(math.log(norms[-1] / norms[-2]))
    before = now
  assert run.learner.traced == traced  # A new norm compiles nothing.
  mechanism = run.mechanism
  np.testing.assert_allclose(
      np.std(ratios), mechanism.gradient_noise_multiplier, rtol=0.01
  )
  # All five norms, of zero, are within: the share is 1.
  counts = (np.array(logs) / -0.2 + 0.5 - 1) * 5
  np.testing.assert_allclose(counts.mean(), 0, atol=0.3)
  np.testing.assert_allclose(counts.std(), 1.0, rtol=0.2)
  # Nor is it the noise of any coordinate over again.
  own = np.corrcoef(np.array(ratios)[:, ::300].T, counts)[-1, :-1]
  assert np.abs(own).max() < 0.35


def test_the_count_has_a_key_of_its_own():
  purposes = (
      keys.SAMPLING, keys.AUGMENTATION, keys.NOISE,
      keys.PARAMETERS, keys.COUNT,
  )
  assert len(set(purposes)) == 5


def test_a_window_in_a_step_holds_the_norms_of_its_tasks(make_run):
  """Data on the host, in blocks; neither a norm nor C is a public metric."""
  run = make_run(
      8, plan.FixedSize(4), clipping="percentile_window", clip_percentile=50.0,
      clip_window=8, clip_norm=3.0, noise_multiplier=0.1,
  )
  run.dataset.resident = False
  run = run._replace(
      learner=dataclasses.replace(run.learner, inner_steps=1, order="first")
  )
  step = run.step(SGD, microbatch_size=3, diagnostics=True)
  state, norms, used = run.init(SGD), [], []
  for _ in range(4):
    state, metrics = step(state)
    norms.append(float(metrics["private/norm"]))
    used.append(float(metrics["private/clip_norm"]))
    assert {n for n in metrics if "/" not in n} == {"step", "update_norm"}
  held = np.asarray(state.clip.norms)
  np.testing.assert_allclose(
      held.reshape(2, 4).mean(1), norms[-2:], rtol=1e-5
  )
  assert used[:2] == [3.0, 3.0]  # The window is full after two lots.
  assert used == sorted(used, reverse=True)
  np.testing.assert_allclose(
      state.clip.bounds[0], min(used[-1], np.median(held)), rtol=1e-6
  )


def test_the_first_norms_are_those_of_fixed_clipping():
  for by, shape in (("global", (1,)), ("layer", (3,))):
    for make in (quantile, window):
      clip = adaptive.init(make(clip_by=by), tree(1.0))
      assert clip.bounds.shape == shape
      np.testing.assert_allclose(
          adaptive.clip_norm(clip), make().clip_norm, rtol=1e-6
      )
  fixed = plan.Mechanism(clip_unit="task", noise_multiplier=2.0, clip_norm=0.3)
  assert adaptive.init(fixed, tree(1.0)) == ()
  assert adaptive.stddev(fixed, ()) == 2.0 * 0.3
  off = plan.Mechanism(
      clip_unit="task", noise_multiplier=0.0, clip_norm=math.inf
  )
  assert adaptive.stddev(off, ()) == 0.0

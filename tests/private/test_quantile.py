"""Clip norms that adapt: a step releases what costs z, quantiles are found."""

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
from episodic_dp.private import quantile
from tests import fake_learner

SGD = optax.sgd(1.0)
SIZES = ((40, 5), (13,), (1, 2, 3))
OPTIONS = dict(
    noise_multiplier=1.5, clip_norm=0.7, clipping="private_quantile",
    clip_quantile=0.5, clip_rate=0.2, count_noise=1.0,
)
CLIP = {
    by: jax.jit(lambda tree, bounds, by=by: private.clip(tree, bounds, by))
    for by in ("global", "layer")
}


def mechanism(**options):
  return plan.Mechanism(**dict(clip_unit="task") | OPTIONS | options)


def tree(scale, seed=0):
  """Arrays whose norms are `scale` times 1, 2 and 3."""
  rng = np.random.default_rng(seed)
  arrays = [rng.standard_normal(size) for size in SIZES]
  return [
      np.float32(scale * (i + 1) * a / np.linalg.norm(a))
      for i, a in enumerate(arrays)
  ]


def in_noise_units(m, bounds, gradient):
  """What one clip unit adds to a release, in deviations of its noise."""
  clipped = CLIP[m.clip_by](gradient, bounds)
  seen = quantile.count_within(
      jax.tree.map(lambda a: a[None], clipped), jnp.ones(1, bool)
  )
  spreads = quantile.stddev(m.gradient_noise_multiplier, bounds)
  spreads = np.broadcast_to(spreads, len(gradient))
  parts = [
      np.asarray(a, np.float64).ravel() / s
      for a, s in zip(clipped.gradient, spreads)
  ]
  count = m.count_noise * math.sqrt(len(bounds))
  return np.concatenate([*parts, np.asarray(seen, np.float64) / count])


@pytest.mark.parametrize("by", ["global", "layer"])
@pytest.mark.parametrize("z,sigma", [(1.5, 1.0), (0.3, 4.0), (4.0, 2.001)])
def test_the_pair_of_a_step_is_one_mechanism_of_multiplier_z(by, z, sigma):
  m = mechanism(noise_multiplier=z, count_noise=sigma, clip_by=by)
  bounds = quantile.init(m, tree(1.0))
  bounds = bounds * jnp.array([1.0, 5.0, 0.1])[: len(bounds)]
  units = [tree(s, seed) for seed, s in enumerate((0, 1e-3, 0.1, 1, 10, 1e6))]
  moves = [in_noise_units(m, bounds, unit) for unit in units]
  bound = 1 / z * (1 + 1e-6)
  for first in moves:
    assert np.linalg.norm(first) <= bound
    for second in moves:
      assert np.linalg.norm(first - second) <= 2 * bound
  # Reached: by one unit far outside, and by its exchange for the opposite one
  # that lies just within, for which both halves move twice as far.
  outside = in_noise_units(m, bounds, tree(1e6))
  each = np.broadcast_to(bounds, len(SIZES))
  scale = each[0] / math.sqrt(14) if by == "global" else None
  just = [
      np.float32(-(1 - 1e-4) * a * (scale or each[i] / (i + 1)))
      for i, a in enumerate(tree(1.0))
  ]
  within = in_noise_units(m, bounds, just)
  assert within[-1] > 0 > outside[-1]
  assert np.linalg.norm(outside) > 1 / z * (1 - 1e-3)
  assert np.linalg.norm(within - outside) > 2 / z * (1 - 1e-3)


def test_units_that_are_not_finite_count_as_nothing():
  bad = tree(1.0)
  bad[1][0] = np.nan
  m = mechanism()
  assert not in_noise_units(m, quantile.init(m, bad), bad).any()


def units_of(norms, bounds):
  """Clip units of which all but the norms [units, groups] is left out."""
  finite = jnp.ones(len(norms), bool)
  return clipping.Clipped(None, None, None, finite, norms, norms <= bounds)


@pytest.mark.parametrize("gamma", [0.2, 0.5, 0.9])
def test_the_quantile_is_found_and_followed(gamma):
  """Two arrays of different scales, which shrink fivefold at once."""
  m = mechanism(
      clip_quantile=gamma, clip_by="layer", count_noise=10.0, clip_norm=1.0
  )
  scales = np.array([1.0, 0.1])

  @jax.jit
  def step(bounds, norms, mask, key):
    seen = quantile.count_within(units_of(norms, bounds), mask)
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


def test_the_noise_of_a_step_is_that_of_the_pair(make_run):
  """Measured: on the gradients z' C, on the count sigma_b, independent."""
  run = make_run(8, plan.FixedSize(5), **OPTIONS)._replace(
      learner=fake_learner.Still()
  )
  step, state = run.step(SGD, microbatch_size=5), run.init(SGD)
  norms, ratios, logs = [float(state.clip[0])], [], []
  before = np.zeros(1500)
  for _ in range(150):
    state, metrics = step(state)
    now = np.concatenate([
        np.asarray(a, np.float64).ravel() for a in state.params.values()
    ])
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


def test_a_window_in_a_step_holds_the_norms_of_its_tasks(make_run):
  """Data on the host, in blocks; neither a norm nor C is a public metric."""
  run = make_run(
      8, plan.FixedSize(4), clip_window=8, clip_norm=3.0, noise_multiplier=0.1,
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

"""Every key of a step is used once: recorded while the step runs.

The run's key is of an implementation that is threefry and notes who asks: a key
that gives bits (it is *used*), and a key that others are derived from. Both are
noted where the compiled step computes them, in its loops too.
"""

import collections
import dataclasses

import jax
from jax.extend import random as extend
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import training
from episodic_dp.private import keys
from episodic_dp.private import noise
from episodic_dp.private import sample_level
from tests import fake_dataset
from tests import plans

_SGD = optax.sgd(0.1)
_LAYERS = plans.QUANTILE | {"clip_by": "layer"}
_SAMPLE_LEVEL = {
    "clip_unit": "image",
    "order": "first",
    "inner_steps": 2,
    "inner_clip_norm": 0.3,
    "inner_noise_multiplier": 0.5,
}


class Uses:
  """Record uses of the keys of one step.

  Attributes:
    bits: key -> how often it gave bits.
    derived: key -> how often others were derived from it.
  """

  def __init__(self):
    self.bits = collections.Counter()
    self.derived = collections.Counter()

  def found_twice(self) -> list[str]:
    """A sentence for every key that is used twice."""
    wrong = [
        f"{key} gave bits {n} times" for key, n in self.bits.items() if n > 1
    ]
    both = self.bits.keys() & self.derived.keys()
    return wrong + [f"{key} gave bits and keys" for key in both]


_NOTED = [Uses()]  # The last is of the step that runs.


def _note(kind, key):
  words = tuple(np.asarray(key).tolist())
  getattr(_NOTED[-1], kind)[words] += 1


def _noting():
  """Threefry, noting."""
  plain = lambda data: jax.random.wrap_key_data(  # noqa: E731
      data, impl="threefry2x32"
  )

  def bits(data, width, shape):
    jax.debug.callback(_note, "bits", data)
    dtype = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[width]
    return jax.random.bits(plain(data), shape, dtype)

  def fold_in(data, number):
    jax.debug.callback(_note, "derived", data)
    return jax.random.key_data(jax.random.fold_in(plain(data), number))

  def split(data, shape):
    jax.debug.callback(_note, "derived", data)
    return jax.random.key_data(jax.random.split(plain(data), shape))

  return extend.define_prng_impl(
      key_shape=(2,),
      seed=lambda seed: jax.random.key_data(
          jax.random.key(seed, impl="threefry2x32")
      ),
      split=split,
      random_bits=bits,
      fold_in=fold_in,
      name="noting threefry",
  )


_IMPL = _noting()


def noted(run, steps=3, **compute):
  """The uses of each step; what the steps compute is that of threefry."""
  data = jnp.asarray([3, 5], jnp.uint32)
  # Every task by itself: under `vmap` one use of a key serves several.
  compute = {"microbatch_size": 1} | compute
  params = run.learner.init(jax.random.key(0))
  # Threefry as it is, which alone is taken; then the one that notes.
  state = private.init(
      private.secret_key(bytes(8)),
      run.learner, _SGD, run.mechanism, params=params,
  )._replace(key=jax.random.wrap_key_data(data, impl=_IMPL))
  step, found = run.step(_SGD, **compute), []
  for _ in range(steps):
    _NOTED.append(Uses())
    state, _ = jax.block_until_ready(step(state))
    jax.effects_barrier()
    found.append(_NOTED.pop())
  return found, state.params


def repeated(found) -> list[str]:
  """Describe keys used twice, within a step or between steps."""
  wrong = [text for uses in found for text in uses.found_twice()]
  seen = set()
  for uses in found:
    wrong += [f"{key} gave bits in two steps" for key in seen & set(uses.bits)]
    seen |= set(uses.bits)
  return wrong


def supervised(run):
  hierarchy = plans.tree("class image", 12, 6)
  run.dataset.hierarchy = hierarchy
  run.dataset.labels = np.arange(72) % 3
  return run._replace(
      learner=learners.Supervised(run.learner.model),
      plan=plans.sampling(0.5, 0.5),
      mechanism=dataclasses.replace(run.mechanism, clip_unit="image"),
  )


def by_example(run):
  held = run.dataset.hierarchy
  run.dataset.hierarchy = plans.tree(held.levels, *held.sizes)
  return run._replace(
      learner=learners.MAML(
          run.learner.model, inner_steps=2, inner_rate=0.5, order="first"
      )
  )


def test_no_key_is_used_twice_in_a_step_or_in_two(make_run):
  run = make_run(8, 0.7, rotate=True, **_LAYERS)
  found, _ = noted(run, steps=2)
  assert repeated(found) == []
  # What a step must draw: three stages, the noise of all arrays and that of the
  # counts, and for each task its labels and its rotations.
  for uses in found:
    tasks = (sum(uses.bits.values()) - 3 - 1 - 1) / 2
    assert 1 <= tasks <= 8 and tasks == int(tasks)


@pytest.mark.slow
def test_nor_with_noisy_inner_steps(make_run):
  run = by_example(make_run(6, 3, **_SAMPLE_LEVEL))
  found, _ = noted(run, steps=2)
  assert repeated(found) == []
  # Three stages; labels of 3 tasks, and the noise of each of 2 inner steps; and
  # that of the step.
  assert [sum(uses.bits.values()) for uses in found] == [3 + 3 + 6 + 1] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    ["chunks", "streamed", "mesh", "supervised", "layers", "passes", "terms"],
)
def test_nor_in_other_kinds_of_steps(kind, make_run):
  stage = plan.RandomAllocation(3) if kind == "passes" else 0.7
  extra = _LAYERS if kind in ("layers", "terms") else {}
  run = make_run(8, stage, rotate=kind != "supervised", **extra)
  run.dataset.resident = kind != "streamed"
  if kind == "supervised":
    run = supervised(run)
  compute = {
      "chunks": {"microbatch_size": 3},
      "terms": {"noise_terms": 4},
      "mesh": {"mesh": training.make_mesh(1)},
  }.get(kind, {})
  found, _ = noted(run, steps=4, **compute)
  # Two stages and the noise, at least.
  assert all(sum(uses.bits.values()) >= 3 for uses in found)
  if kind == "passes":
    # The steps of a pass share the assignment of participants to steps, which
    # one key of the pass gives: by intent, and accounted for.
    assert [uses.found_twice() for uses in found] == [[]] * 4
    assert len(repeated(found)) == 2
  else:
    # Streaming draws the next step's tasks ahead, each step's once.
    assert repeated(found) == []


# Planted: each of these is a way to lose the guarantee ------------------------


def _one_noise_for_all_arrays(monkeypatch):
  def add(key, total, stddev, *, terms):
    assert terms == 1
    leaves, treedef = jax.tree.flatten(total)
    spread = jnp.broadcast_to(jnp.asarray(stddev), len(leaves))
    noised = [
        leaf + spread[i] * noise.standard_normal(key, leaf.shape)
        for i, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(treedef, noised)

  monkeypatch.setattr(noise, "add_noise", add)


def _one_purpose_for_two(purpose, other):
  """One purpose's numbers are drawn from the key of another one."""

  def plant(monkeypatch):
    monkeypatch.setattr(keys, purpose, getattr(keys, other))

  return plant


def _the_same_noise_in_every_step(monkeypatch):
  derived = keys.step_key
  monkeypatch.setattr(
      keys,
      "step_key",
      lambda key, purpose, step: derived(key, purpose, 0 * step),
  )


def _every_task_has_the_same_inner_noise(monkeypatch):
  shared = jax.random.key_data(jax.random.key(9))
  real = sample_level.query_sum
  monkeypatch.setattr(
      sample_level,
      "query_sum",
      lambda learner, mechanism, params, task, key, bounds: real(
          learner, mechanism, params, task,
          jax.random.wrap_key_data(shared, impl=jax.random.key_impl(key)),
          bounds,
      ),
  )


def _inner_steps_share_their_noise(monkeypatch):
  real = sample_level.inner_gradient

  def inner_gradient(mechanism, key):
    make = real(mechanism, key)

    def of_loss(loss):
      gradient = make(loss)
      return lambda params, examples, step: gradient(params, examples, 0 * step)

    return of_loss

  monkeypatch.setattr(sample_level, "inner_gradient", inner_gradient)


@pytest.mark.parametrize(
    "plant",
    [
        _one_purpose_for_two("NOISE", "SAMPLING"),
        _every_task_has_the_same_inner_noise,
        _one_purpose_for_two("COUNT", "NOISE"),
        _one_noise_for_all_arrays,
        _one_purpose_for_two("SAMPLING", "AUGMENTATION"),
        _the_same_noise_in_every_step,
        _inner_steps_share_their_noise,
    ],
)
@pytest.mark.few(1)
def test_a_planted_reuse_is_found(plant, make_run, monkeypatch):
  run = (
      by_example(make_run(6, 2, **_SAMPLE_LEVEL))
      if "inner" in plant.__name__
      else make_run(4, 2, **_LAYERS)
  )
  plant(monkeypatch)
  found, _ = noted(run, steps=2)
  wrong = repeated(found)
  assert wrong and all("gave bits" in text for text in wrong)


def test_keys_of_many_steps_and_purposes_differ():
  """Also at the ends of their ranges, and from the key of a pass."""
  key = private.secret_key(b"12345678")
  assert len({keys.SAMPLING, keys.AUGMENTATION, keys.NOISE,
              keys.PARAMETERS, keys.INNER_NOISE,
              keys.COUNT}) == 6
  steps = jnp.asarray([*range(2000), 2**30, 2**31 - 2, 2**31 - 1], jnp.int32)
  made = jax.jit(
      jax.vmap(
          lambda p: jax.vmap(
              lambda s: jax.random.key_data(keys.step_key(key, p, s))
          )(steps)
      )
  )(jnp.arange(6))
  words = np.asarray(made).reshape(-1, 2)
  assert len(np.unique(words, axis=0)) == 6 * len(steps)


# Layers that draw -------------------------------------------------------------

TASKS, WAY = 6, 2
SGD = optax.sgd(1.0)
KEY = private.secret_key(bytes([1] * 8))
DATA = fake_dataset.FakeDataset(
    images=np.random.default_rng(0)
    .standard_normal((TASKS * WAY * 2, 1, 1, 4))
    .astype(np.float32),
    hierarchy=plans.tree("participant class image", TASKS, WAY, 2),
)
PLAN = plans.sampling(TASKS, WAY, 2, way=WAY, shot=1, query=1)


def dropped(params, images, key):
  x = images.reshape(images.shape[0], -1)
  kept = jax.random.bernoulli(key, 0.5, (1, 4))
  return jnp.where(kept, x, 0) @ params["head"]


def network(random=dropped):
  """A linear network, which drops inputs while it is trained."""
  return models.Model(
      lambda key: {"head": jax.random.normal(key, (4, WAY))},
      lambda params, images: images.reshape(-1, 4) @ params["head"],
      mixes_examples=False,
      random=random,
  )


def taken(learner, *, data=DATA, described=PLAN, steps=1, **mechanism):
  """The releases of some steps, without noise or clipping."""
  chosen = dict(clip_unit="participant", clip_norm=1e6, noise_multiplier=0.0)
  release = plan.Release(
      data.hierarchy, described, plan.Mechanism(**(chosen | mechanism))
  )
  state = private.init(KEY, learner, SGD, release.mechanism)
  step = private.make_meta_step(learner, SGD, data, release)
  updates = []
  for _ in range(steps):
    before = jax.tree.map(np.array, state.params)
    state, _ = step(state)
    updates.append(jax.tree.map(lambda a, b: a - b, before, state.params))
  return updates


def uniforms(own):
  """The numbers that three passes draw by the key of a task."""
  fold = jax.random.fold_in
  passes = [own, fold(own, 1), fold(own, 2)]
  return np.array([jax.random.uniform(fold(key, 0)) for key in passes])


class Telling(learners.Supervised):
  """Its update is what its network draws, whatever the data."""

  adapts = True

  def meta_gradient(self, params, episode):
    """Return the draws for the query set and two passes over the support."""
    found = [
        learner.model.apply(params, jnp.ones((1, 4)))[0, 0]
        for learner in (self, self.in_pass(0), self.in_pass(1))
    ]
    return jnp.zeros(()), {"head": jnp.zeros((4, WAY)).at[:3, 0].set(
        jnp.stack(found)
    )}


def test_draws_follow_from_the_key_the_step_the_task_and_the_pass():
  def random(params, images, key):
    return jnp.tile(jax.random.uniform(key), (len(images), WAY))

  found = taken(Telling(network(random)), steps=2)
  for step, update in enumerate(found):
    shared = keys.step_key(KEY, keys.LAYERS, step)
    drawn = [
        uniforms(jax.random.fold_in(shared, slot)) for slot in range(TASKS)
    ]
    assert len(np.unique(drawn)) == 3 * TASKS
    np.testing.assert_allclose(
        update["head"][:3, 0], np.mean(drawn, axis=0), rtol=1e-5
    )


def apply_mixed(params, images):
  x = images.reshape(-1, 4)
  return (x - 1e-6 * x.mean(0, keepdims=True)) @ params["head"]


@pytest.mark.parametrize(
    "mixing",
    [
        # Its claim is not read, and it mixes only while it is trained.
        network(lambda params, images, key:
                dropped(params, images, key) + images.mean()),
        network(None)._replace(apply=apply_mixed),
    ],
)
def test_what_mixes_is_refused_for_examples(mixing):
  examples = fake_dataset.FakeDataset(
      images=DATA.images[:TASKS],
      hierarchy=plans.tree("image", TASKS),
      labels=np.arange(TASKS) % WAY,
  )
  with pytest.raises(plan.UnsoundPlanError, match="mixes examples"):
    taken(
        learners.Supervised(mixing),
        data=examples,
        described=plans.sampling(TASKS),
        clip_unit="image",
    )


def test_a_task_drawn_several_times_is_clipped_once():
  # Each draw's gradient is longer than the clip norm, and two cancel out.
  def random(params, images, key):
    sign = jnp.sign(jax.random.uniform(key) - 0.5)
    return jnp.tile(100 * sign, (len(images), WAY))

  several = network(random)._replace(multiplicity=4)
  (found,) = taken(Telling(several), clip_norm=1.0)
  step, updates = keys.step_key(KEY, keys.LAYERS, 0), []
  for slot in range(TASKS):
    own = jax.random.split(jax.random.fold_in(step, slot), 4)
    mean = np.mean([100 * np.sign(uniforms(k) - 0.5) for k in own], axis=0)
    updates.append(mean * min(1, 1 / max(np.linalg.norm(mean), 1e-9)))
  np.testing.assert_allclose(
      found["head"][:3, 0], np.mean(updates, axis=0), rtol=1e-4, atol=1e-6
  )

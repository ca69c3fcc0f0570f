"""Attacks by data: what one record does to the sum, whatever it holds.

The data are chosen to break the bound: NaN, infinities, the largest and the
smallest numbers of float32, many equal entries whose squares round the same
way, and sums that make every addition round the wrong way. Two things are
asked, the accountant's sensitivity of the contributions and the rounding of
their sum that `clipping` states.
"""

import math
import re

import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import errors
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.models import networks
from episodic_dp.private import clipping
from episodic_dp.private import quantile
from episodic_dp.private import sample_level
from episodic_dp.private import step as step_lib
from episodic_dp.sampling import episodes
from tests import fake_dataset
from tests import fake_learner
from tests import plans
from tests import task_sums
from tests.task_sums import flat

pytestmark = pytest.mark.optimized

_LARGEST = float(np.finfo(np.float32).max)
_SMALLEST = float(np.finfo(np.float32).tiny)
# A pixel is an index of this table, so that images of any dtype are valid and
# gradients are anything.
TABLE = np.asarray(
    [0.0, -0.0, 1.0, -1.0, 1 / 3, 1e-3, -7.0, 1e19, -1e20, 1e-19, 1e-23]
    + [_LARGEST, -_LARGEST, _LARGEST / 2, _SMALLEST, -_SMALLEST]
    + [_SMALLEST / 2, 1e-45, -1e-45, 16777216.0, 0.99999994, 1.0000001]
    + [math.nan, math.inf, -math.inf],
    np.float32,
)
FINITE = int(np.isfinite(TABLE).sum())
SIDE, SLOTS, CHUNK = 6, 9, 4
PIXELS = SIDE * SIDE
ROUNDING = 2.0**-24
EPISODE = plan.Episode(way=1, shot=1, query=1)
KEY = jax.random.key(3)
# Another case of this test is among the quick tests.
also = lambda *case: pytest.param(*case, marks=pytest.mark.slow)  # noqa: E731


def looked_up(images):
  """float32[n, PIXELS] of pixels."""
  codes = jnp.round(images.reshape(images.shape[0], -1) * 255.0)
  return jnp.asarray(TABLE)[codes.astype(jnp.int32)]


class Planted(fake_learner.FakeLearner):
  """A learner whose gradient is what the query image's pixels say."""

  adapts = False

  def init(self, key=None):
    del key
    return {"a": jnp.zeros((5, 4)), "b": jnp.zeros(PIXELS - 20)}

  def meta_gradient(self, params, episode):
    del params
    values = looked_up(episode.query.images)[0]
    return values.sum(), {"a": values[:20].reshape(5, 4), "b": values[20:]}

  def predict(self, params, support, images):
    del params, support
    return jnp.zeros((images.shape[0], 1))


LEARNER = Planted()


def exact_norm(values) -> float:
  """Squares of float32 are exact in float64, and so is their sum here."""
  scale = max(np.max(np.abs(values), initial=0.0), 1e-300)
  # A power of two, or the squares of the smallest would be lost.
  scale = 2.0 ** math.floor(math.log2(scale))
  return scale * math.sqrt(math.fsum((values / scale) ** 2))


def codes():
  """int[SLOTS + 1, PIXELS]: a data set of records, and one more."""
  def record(pick):
    kind, seed, few = pick
    rng = np.random.default_rng(seed)
    finite = rng.integers(0, FINITE, PIXELS)
    if kind == "equal":
      return np.full(PIXELS, few % FINITE)
    if kind == "alternating":
      return np.where(np.arange(PIXELS) % 2, 2, 3)
    if kind == "finite":
      return finite
    if kind == "spoiled":
      finite[few % PIXELS] = FINITE + few % (len(TABLE) - FINITE)
      return finite
    sparse = np.zeros(PIXELS, int)
    sparse[few % PIXELS] = few % FINITE
    return sparse

  one = st.tuples(
      st.sampled_from(["equal", "alternating", "finite", "spoiled", "sparse"]),
      st.integers(0, 2**20),
      st.integers(0, 1000),
  )
  return st.lists(one, min_size=SLOTS + 1, max_size=SLOTS + 1).map(
      lambda picks: np.stack([record(pick) for pick in picks])
  )


def summed(kind, by, unit="task", mesh=None):
  """compiled (codes [SLOTS, PIXELS], mask, C) -> `step.Totals`.

  The real path of a step, at a clip norm that is an argument (a number the
  program computes, as in adaptive clipping) or a constant.
  """
  adapts, settings = kind == "adaptive", {"clip_norm": kind}
  if adapts:
    settings = plans.QUANTILE
  mechanism = plan.Mechanism(
      clip_unit=unit, noise_multiplier=0.0, clip_by=by, **settings
  )
  rows = jnp.arange(2 * SLOTS, dtype=jnp.int32)
  rows = rows.reshape(-1, 1, 2) if unit == "task" else rows[:SLOTS, None, None]

  program = task_sums.settings_of(
      LEARNER, mechanism, EPISODE if unit == "task" else None,
      microbatch_size=CHUNK, diagnostics=True,
  )

  def run(values, mask, bounds):
    images = values.astype(jnp.uint8).reshape(SLOTS, SIDE, SIDE, 1)
    if unit == "task":  # A record is a support and a query image.
      images = jnp.repeat(images, 2, 0)
    labels = None if unit == "task" else jnp.zeros(SLOTS, jnp.int32)
    tasks = step_lib.StepTasks(images, rows, mask, labels)
    clip = bounds if adapts else None
    state = task_sums.state_of(LEARNER.init(), mechanism, KEY, clip)
    return step_lib.sum_tasks(program, mesh, state, tasks)

  return jax.jit(run)


def check_pair(run, bounds, values):
  """One record left out, and one exchanged for another.

  Args:
    run: from `summed`.
    bounds: float32[groups] where they are an argument, else the number C.
    values: from `codes`.
  """
  norm = exact_norm(np.atleast_1d(np.asarray(bounds, np.float64)))
  full = np.ones(SLOTS, bool)
  base, other = values[:SLOTS], values[SLOTS]

  def total(records, mask=full):
    found = run(records, mask, bounds)
    return flat(found.sum), flat(found.norms)

  alone = []
  for i in range(SLOTS):  # Alone, a sum is the contribution, bit for bit.
    contribution, _ = total(base, np.arange(SLOTS) == i)
    assert np.isfinite(contribution).all()
    assert exact_norm(contribution) <= private.sensitivity(norm)
    alone.append(contribution)
  exact = np.array([math.fsum(column) for column in np.transpose(alone)])
  slack = (CHUNK + 2) * ROUNDING * SLOTS * norm
  before, count = total(base)
  # So nothing of one record reaches another's contribution.
  assert exact_norm(before - exact) <= slack
  i = int(values.sum()) % SLOTS
  swapped = base.copy()
  swapped[i] = other
  for neighbours, records, mask in (
      ("add-or-remove", base, np.arange(SLOTS) != i),
      ("replace-one", swapped, full),
  ):
    after, changed = total(records, mask)
    limit = private.sensitivity(norm, neighbours)
    assert exact_norm(after - before) <= limit + 2 * slack
    # Counts are halves, which float32 adds without rounding.
    allowed = private.sensitivity(0.5, neighbours)
    assert np.abs(changed - count).max(initial=0.0) <= allowed


# Not made smaller where it fails: every try is a dozen of compiled sums.
_PHASES = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
_QUICK = hypothesis.settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=_PHASES,
)


_MANY = hypothesis.settings(
    max_examples=1000, deadline=None, database=None, phases=_PHASES
)


def clip_norms(by):
  """float32[groups]: of all arrays together, or one for each."""
  groups = 1 if by == "global" else 2
  sizes = st.floats(-20, 20).map(lambda e: 10.0**e)
  return st.lists(sizes, min_size=groups, max_size=groups).map(
      lambda bounds: np.float32(bounds).clip(1e-20, 1e20)
  )


_CASES = [
    ("adaptive", "global", "task", False, _QUICK),
    ("adaptive", "layer", "image", False, _QUICK),
    (0.1, "layer", "task", True, _QUICK),
    also(1.0, "global", "task", False, _QUICK),
    also(1e-20, "global", "task", True, _QUICK),
    *(
        also("adaptive", by, unit, meshed, _MANY)
        for by in ("global", "layer")
        for unit in ("task", "image")
        for meshed in (False, True)
    ),
]


@pytest.mark.parametrize("kind,by,unit,meshed,settings", _CASES)
@pytest.mark.few(2)
def test_one_record_moves_the_sum_by_its_sensitivity(
    kind, by, unit, meshed, settings
):
  """At a clip norm that adapts, and at constant ones."""
  run = summed(kind, by, unit, training.make_mesh(1) if meshed else None)
  norms = clip_norms(by) if kind == "adaptive" else st.just(kind)
  tried = []

  @hypothesis.given(codes(), norms)
  @settings
  def check(values, bounds):
    tried.append(np.isnan(TABLE[values]).any())
    check_pair(run, bounds, values)

  check()
  assert len(tried) >= 0.8 * settings.max_examples and any(tried)


@pytest.mark.parametrize("value", [1.0, 1 / 3, 1e-19, _LARGEST, 0.99999994])
def test_many_equal_entries_whose_squares_all_round_one_way(value):
  """10^5 of them, and lengths about the powers of two."""
  clip = jax.jit(lambda g: clipping.clip(g, 1.0).gradient)
  for size in (4095, 4097, 100_003):
    gradient = np.full(size, value, np.float32)
    gradient[::2] *= -1
    found = np.asarray(clip(gradient), np.float64)
    assert 1 - 1e-4 < exact_norm(found) <= private.sensitivity(1.0) or (
        value < 1e-10 and np.array_equal(found, gradient)
    )


def clip_batched(gradient):
  """The first of a batch of one."""
  one = jax.jit(jax.vmap(clip_small))(gradient[None])
  return jax.tree.map(lambda a: a[0], one)


def clip_small(gradient):
  return clipping.clip(gradient, 1e-20)


@pytest.mark.parametrize(
    "clip", [clip_small, jax.jit(clip_small), clip_batched]
)
@pytest.mark.parametrize("exponent", [-127, -126, 0, 125, 126, 127])
def test_the_reciprocal_of_the_largest_entry_is_never_flushed(clip, exponent):
  """2^-127 is subnormal: a product with it would make a gradient zero."""
  for mantissa in (1.0, 2 - 2.0**-23):
    gradient = np.full(36, mantissa * 2.0**exponent, np.float32)
    found = clip(gradient)
    norm = exact_norm(np.asarray(found.gradient, np.float64))
    assert norm <= private.sensitivity(1e-20)
    assert found.clipped == (exponent > -126)
    assert norm > 0.9e-20 or exponent <= -126


def test_gradients_that_are_constants_of_the_program():
  """For example of a parameter that nothing reads, with others or alone."""
  clip = jax.jit(jax.vmap(lambda a: clipping.clip((a, jnp.zeros((9, 3))), 1.0)))
  found = clip(np.float32([[3.0, 4.0], [0.0, 0.0], [1e-30, 0.0]]))
  np.testing.assert_array_equal(found.finite, True)
  np.testing.assert_allclose(found.norm, [5.0, 0.0, 1e-30], rtol=1e-6)
  alone = jax.jit(lambda: clipping.clip(jnp.zeros((300, 2)), 1.0))()
  assert alone.finite and not alone.clipped and alone.norm == 0
  np.testing.assert_array_equal(alone.gradient, 0)


def test_gradients_just_within_and_just_beyond_the_clip_norm():
  clip = jax.jit(lambda g, c: clipping.clip(g, c).gradient)
  rng = np.random.default_rng(0)
  for size in (2, 40, 5000):
    direction = rng.standard_normal(size)
    direction /= np.linalg.norm(direction)
    for ulps in (-3, -1, 0, 1, 3, 30, 1000):
      for norm in (1.0, 1e-20, 1e20, 1 / 3):
        bound = np.float32([norm])
        gradient = (direction * norm * (1 + ulps * 2.0**-24)).astype(np.float32)
        found = np.asarray(clip(gradient, bound), np.float64)
        assert exact_norm(found) <= float(bound[0])


# The rounding of the sum ------------------------------------------------------


def unlucky(chunk):
  """float32[n]: with the first record a sum stays above 2^10, without below.

  Beyond 2^10 every later part is a little more than half a unit in the last
  place and is rounded up to a whole one; below it is not.
  """
  large = np.full(1026, 1 - 1e-4, np.float32)
  large[-1] = 1024.25 - float(large[:-1].astype(np.float64).sum())
  large = np.pad(large, (0, -len(large) % chunk))
  small = np.full(1600 * chunk, 2.0**-14 * 1.001 / chunk, np.float32)
  return np.concatenate([large, small])


@pytest.mark.parametrize("chunk", [4, also(1)])
def test_sums_chosen_to_round_the_wrong_way(chunk, monkeypatch):
  values = unlucky(chunk)

  class Pixel(Planted):

    def init(self, key=None):
      return jnp.zeros(1)

    def meta_gradient(self, params, episode):
      return jnp.zeros(()), episode.query.images[0, 0, 0]

  mechanism = plan.Mechanism(clip_unit="image", noise_multiplier=0.0)
  images = jnp.asarray(values)[:, None, None, None]
  rows = jnp.arange(len(values), dtype=jnp.int32)[:, None, None]
  labels = jnp.zeros(len(values), jnp.int32)

  def moved():
    total = jax.jit(
        lambda mask: task_sums.sum_tasks(
            Pixel(), mechanism, jnp.zeros(1),
            step_lib.StepTasks(images, rows, mask, labels),
            KEY, episode=None, microbatch_size=chunk,
        )[0]
    )
    with_it = np.ones(len(values), bool)
    without = np.arange(len(values)) > 0
    return float(total(with_it)[0]) - float(total(without)[0])

  rounding = (chunk + 2) * ROUNDING * values.astype(np.float64).sum()
  assert moved() <= private.sensitivity(1.0) + 2 * rounding
  # As it would be if the parts were just added up.
  plain = lambda total, compensation, part: (  # noqa: E731
      jax.tree.map(jnp.add, total, part), compensation
  )
  monkeypatch.setattr(clipping, "compensated_add", plain)
  assert moved() > 1.09


# Whole steps ------------------------------------------------------------------


def released(dataset, stages, episode, unit, **mechanism):
  """float64: the sum that one whole step without noise releases."""
  mechanism = plan.Mechanism(
      **{"clip_unit": unit, "noise_multiplier": 0.0} | mechanism
  )
  optimizer = optax.sgd(1.0)
  step = private.make_meta_step(
      LEARNER,
      optimizer,
      dataset,
      plan.Release(
          dataset.hierarchy,
          plans.sampling(*stages, episode=episode),
          mechanism,
      ),
      compute=private.Compute(microbatch_size=CHUNK),
  )
  state, metrics = step(private.init(KEY, LEARNER, optimizer, mechanism))
  assert np.isfinite(metrics["update_norm"])
  return -flat(state.params)  # Divided by 8 units: exact.


@pytest.mark.parametrize("unit", ["participant", also("image")])
def test_a_whole_step_with_records_of_nan_and_infinity(unit):
  supervised = unit == "image"
  rng = np.random.default_rng(0)
  pixels = rng.integers(0, FINITE, (8, PIXELS)).astype(np.uint8)
  pixels[3, 5] = FINITE  # NaN
  pixels[4, 7] = FINITE + 1  # infinity
  if supervised:
    hierarchy = plans.tree("image", 8)
    stages, episode = (plan.All(),), None
  else:
    hierarchy = plans.tree("participant class image", 8, 1, 2)
    stages = (plan.All(), 1, 2)
    episode = EPISODE

  def release(records):
    images = records.reshape(8, SIDE, SIDE, 1)
    dataset = fake_dataset.FakeDataset(
        images=images if supervised else np.repeat(images, 2, 0),
        hierarchy=hierarchy,
        labels=np.zeros(8, np.int32),
    )
    return released(dataset, stages, episode, unit, clip_norm=1.0)

  base = release(pixels)
  assert exact_norm(base) > 0
  limit = (private.sensitivity(1.0, "replace-one") + 16 * CHUNK * ROUNDING) / 8
  for i, code in ((0, FINITE), (3, 11), (4, FINITE + 2), (7, 12)):
    changed = pixels.copy()
    changed[i, :] = code
    assert exact_norm(release(changed) - base) <= limit


# Examples as clip units -------------------------------------------------------


class PlantedSteps(Planted):
  """One inner step along planted gradients; the outer ones are planted too."""

  order, inner_steps = "first", 1

  def adapt(self, params, support, *, inner_gradient):
    slope = inner_gradient(self.adapted_loss)(params, support, 0)
    return jax.tree.map(lambda p, g: p - g, params, slope)

  def adapted_loss(self, params, examples, step=0):
    del step
    values = looked_up(examples.images).mean(0)
    # Linear, and its gradient the values themselves, whatever they are.
    return jnp.vdot(params["a"], values[:20].reshape(5, 4)) + jnp.vdot(
        params["b"], values[20:]
    )


@pytest.mark.parametrize("by", ["layer", also("global")])
def test_one_example_moves_an_inner_and_an_outer_sum_by_its_bound(by):
  examples, learner = 6, PlantedSteps()
  mechanism = plan.Mechanism(
      clip_unit="image", noise_multiplier=1.0, clip_norm=0.7, clip_by=by,
      order="first", inner_steps=1, inner_clip_norm=0.3,
      inner_noise_multiplier=1e-30,
  )

  def part(values):
    images = values.reshape(-1, SIDE, SIDE, 1).astype(jnp.float32) / 255.0
    return episodes.Examples(images, jnp.zeros(examples, jnp.int32))

  @jax.jit
  def inner(values):  # The mean, whose number of examples is public.
    gradient = sample_level.inner_gradient(mechanism, KEY)
    return gradient(learner.adapted_loss)(learner.init(), part(values), 0)

  @jax.jit
  def outer(support, query):
    task = sampling.EpisodeBatch(part(support), part(query))
    _, clipped = sample_level.query_sum(
        learner, mechanism, learner.init(), task, KEY,
        quantile.init(mechanism, learner.init()),
    )
    return clipped.gradient

  tried = []

  @hypothesis.given(codes(), st.integers(0, examples - 1))
  @_QUICK
  def check(values, i):
    tried.append(values)
    values = values[: examples + 1]
    before, after = values[:examples].copy(), values[:examples].copy()
    after[i] = values[examples]
    slack = 2 * (examples + 2) * ROUNDING * examples
    limit = private.sensitivity(0.3, "replace-one") + 0.3 * slack
    moved = flat(inner(after)) - flat(inner(before))
    assert exact_norm(moved) * examples <= limit
    limit = private.sensitivity(0.7, "replace-one") + 0.7 * slack
    start = flat(outer(before, before))
    assert np.isfinite(start).all()
    assert exact_norm(flat(outer(before, after)) - start) <= limit
    # A support example reaches the outer sum through the noised sums alone,
    # which this learner's outer gradients do not read.
    np.testing.assert_array_equal(flat(outer(after, before)), start)

  check()
  assert len(tried) >= 20


# Data that are refused, or trained on without harm ----------------------------


def _one_block(norm):
  """One block of Conv4 and a linear layer; small enough to compile."""
  width = 12  # More than a patch has entries, as in the first block.

  def init(key):
    first, last = jax.random.normal(key, (2, 9 * width))
    return {
        "kernel": first.reshape(3, 3, 1, width),
        "scale": jnp.ones(width),
        "bias": jnp.zeros(width),
        "last": last[: 2 * width].reshape(width, 2),
    }

  def apply(params, x):
    affine = params["scale"], params["bias"]
    x = networks.block(x, params["kernel"], *affine, norm)
    return x.mean((1, 2)) @ params["last"]

  return models.Model(init, apply)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["batch", also("group")])
def test_constant_images_give_finite_gradients(norm):
  """Variance 0: black, white, grey, and one value for each class."""
  learner = learners.MAML(_one_block(norm), inner_steps=1, inner_rate=0.5)
  mechanism = plan.Mechanism(clip_unit="task", noise_multiplier=0.0)
  params = learner.init(jax.random.key(0))
  episode = plan.Episode(way=2, shot=1, query=1)
  values = [0] * 4 + [255] * 4 + [77] * 4 + [0, 0, 255, 255]
  images = np.ones((16, SIDE, SIDE, 1), np.uint8)
  images *= np.asarray(values, np.uint8)[:, None, None, None]
  rows = np.arange(16, dtype=np.int32).reshape(4, 2, 2)
  total, facts = jax.jit(
      lambda images, rows: task_sums.sum_tasks(
          learner, mechanism, params,
          step_lib.StepTasks(images, rows, jnp.ones(4, bool)), KEY,
          episode=episode, microbatch_size=2, diagnostics=True,
      )
  )(images, rows)
  assert facts["private/non_finite"] == 0
  assert np.isfinite(flat(total)).all()


def _dataset(images, hierarchy=None):
  return fake_dataset.FakeDataset(
      images=images,
      hierarchy=hierarchy or plans.tree("image", 8),
      labels=np.zeros(len(images), np.int32),
  )


_BLACK = np.zeros((8, SIDE, SIDE, 1))
_SPOILED = [np.float32(_BLACK + 0) for _ in range(3)]
for _image, _value in zip(_SPOILED, (math.nan, math.inf, -math.inf)):
  _image[5, 2, 2, 0] = _value


@pytest.mark.parametrize(
    "images,text",
    [
        *((_BLACK.astype(dtype), f"dtype {np.dtype(dtype)}: give uint8")
          for dtype in ("float64", "float16", "int32", "int64", "bool",
                        "complex64", "O")),
        *((images, "1 images hold NaN or infinity, first row 5")
          for images in _SPOILED),
    ],
)
def test_wrong_images_are_refused_before_training(images, text):
  with pytest.raises(errors.DataError, match=text):
    released(_dataset(images), (plan.All(),), None, "image")


@pytest.mark.parametrize("norm,z", [(1e-40, 1), (1e39, 1), (1e-10, 1e-30)])
def test_noise_that_float32_does_not_hold_is_refused(norm, z):
  """It would be flushed to 0, or be infinite."""
  with pytest.raises(plan.PlanError, match=re.escape(f"clip_norm={norm}")):
    released(
        _dataset(_BLACK.astype(np.uint8)), (plan.All(),), None, "image",
        clip_norm=norm, noise_multiplier=z,
    )


def test_empty_classes_are_refused_or_empty_draws():
  """A class without images gives no example, and is drawn as any other."""
  hierarchy = plans.nested("class image", [4, 0, 4])
  dataset = _dataset(np.full((8, SIDE, SIDE, 1), 2, np.uint8), hierarchy)
  with pytest.raises(plan.PlanError):
    released(dataset, (plan.All(), 2), None, "image")
  found = released(dataset, (plan.All(), 0.999), None, "image")
  assert np.isfinite(found).all() and exact_norm(found) > 0

"""Networks that begin with public weights, and their files."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from episodic_dp import learners
from episodic_dp import models
from episodic_dp.data import glyphs
from episodic_dp.data import scenes
from episodic_dp.models import parts
from episodic_dp.sampling import episodes
from tests.fake_network import layered
from tests.refusals import assert_refused

SHAPE = (4,)


def start_of(model, seed=7):
  params = model.init(jax.random.key(seed))
  return {k: np.asarray(v) for k, v in parts.by_name(params).items()}


HEAD = {"head/kernel", "head/bias"}
NORM = {"norm/scale", "norm/bias"}
TRAINED = {
    "all": {*HEAD, *NORM, "hidden/kernel"},
    "head": HEAD,
    "scale_shift": {*HEAD, *NORM},
}


@pytest.mark.parametrize(
    "name, draw, least, most",
    [
        ("glyphs", glyphs.characters, 0.9, 0.8),
        ("scenes", scenes.scenes, 0.65, 0.6),
    ],
)
@pytest.mark.slow
def test_a_shipped_start_tells_unseen_classes_apart(name, draw, least, most):
  """It has seen generated classes of other keys."""
  drawn = jax.jit(lambda key: draw(key, 40 * 5, 2))(jax.random.key(7))
  drawn = drawn.astype(jnp.float32) / 255
  shape = drawn.shape[2:]
  network = models.conv4(
      way=None, width=32, input_shape=shape, cosine=name == "scenes"
  )
  start = models.start_from(network, models.read_weights(name))
  tasks = drawn.reshape(40, 5, 2, *shape)

  def accuracy(model):
    learner = learners.ProtoNet(model, way=5, scale=1 / 32)
    params = learner.init(jax.random.key(0))

    def right(task):
      support = episodes.Examples(task[:, 0], jnp.arange(5))
      adapted = learner.adapt(params, support)
      return learner.logits(adapted, task[:, 1]).argmax(1) == jnp.arange(5)

    return float(jax.jit(jax.vmap(right))(tasks).mean())

  assert accuracy(start) > least > most > accuracy(network)


@pytest.mark.parametrize("trained", TRAINED)
@pytest.mark.few(2)
def test_a_network_begins_as_its_start_and_trains_what_is_said(trained):
  model, start = layered(), start_of(layered())
  found = models.start_from(model, start, trained=trained)
  params = found.init(jax.random.key(0))
  assert set(parts.by_name(params)) == TRAINED[trained]
  x = jax.random.normal(jax.random.key(1), (5, *SHAPE))
  np.testing.assert_allclose(
      found.apply(params, x),
      model.apply(model.init(jax.random.key(7)), x),
      rtol=1e-6,
  )
  whole = params if found.whole is None else found.whole(params)
  for name, array in parts.by_name(whole).items():
    np.testing.assert_array_equal(array, start[name])
  assert found.start and not found.mixes_examples
  # Moved, what is trained alone differs from the start.
  moved = jax.tree.map(lambda p: p + 0.5, params)
  whole = moved if found.whole is None else found.whole(moved)
  changed = {
      name for name, array in parts.by_name(whole).items()
      if (array != start[name]).any()
  }
  assert changed == TRAINED[trained]
  # Every trained number has a slope: none is noised for nothing.
  slopes = jax.grad(lambda p: (found.apply(p, x) ** 2).sum())(moved)
  assert all((np.asarray(s) != 0).all() for s in jax.tree.leaves(slopes))


@pytest.mark.parametrize(
    "model, options, sentence",
    [
        (layered(), {"trained": "film"}, "trained='film'"),
        (layered(norm=False), {"trained": "scale_shift"}, "has no norms"),
        (layered(head=False), {"trained": "head"}, "has no layer 'head'"),
    ],
)
def test_what_would_train_nothing_is_refused(model, options, sentence):
  with pytest.raises(ValueError, match=sentence):
    models.start_from(model, start_of(model), **options)


# Files ------------------------------------------------------------------------

WEIGHTS = {
    "hidden/kernel": np.arange(24, dtype=np.float32).reshape(4, 6),
    "norm/scale": np.ones(6, np.float32),
    "norm/bias": np.zeros(6, np.float32),
    "head/kernel": np.ones((6, 3), np.float32),
    "head/bias": np.zeros(3, np.float32),
}


@pytest.mark.parametrize("suffix", parts.SUFFIXES)
def test_written_weights_are_read(tmp_path, suffix):
  params = layered().init(jax.random.key(0))
  models.write_weights(tmp_path / f"start{suffix}", params)
  found = models.read_weights(tmp_path / f"start{suffix}")
  assert found.keys() == WEIGHTS.keys()
  for name, array in parts.by_name(params).items():
    np.testing.assert_array_equal(found[name], array)
  digest = parts.digest(found)
  assert digest == parts.digest(start_of(layered(), 0))
  assert digest != parts.digest(found | {"head/bias": np.ones(3, "f")})


def test_weights_of_another_library_get_names_of_this_one(tmp_path):
  path = tmp_path / "torch.safetensors"
  safetensors.numpy.save_file({
      "layers.0.weight": np.ascontiguousarray(WEIGHTS["hidden/kernel"].T),
      "norm.weight": WEIGHTS["norm/scale"], "norm.bias": WEIGHTS["norm/bias"],
      "norm.running_mean": np.ones(6, np.float32),
  }, path)
  found = models.read_weights(path, rename={
      r"layers\.0\.weight": "hidden/kernel",
      r"norm\.weight": "norm/scale",
      r"(\w+)\.(bias)": r"\1/\2",
  })
  assert set(found) == {"hidden/kernel", *NORM}  # Others are left out.
  found["hidden/kernel"] = found["hidden/kernel"].T
  model = models.start_from(layered(), found)
  params = parts.by_name(model.init(jax.random.key(0)))
  for name, array in found.items():
    np.testing.assert_array_equal(params[name], array)
  with pytest.raises(ValueError, match="two arrays of .* one name"):
    models.read_weights(path, rename={".*": "a"})
  assert "norm.running_mean" in models.read_weights(path)


def _garbage(path):
  path.write_bytes(b"PK\3\4 no archive" * 9)


def _pickled(path):
  with open(path, "wb") as out:
    np.savez(out, a=np.array([{"an": "object"}], dtype=object))


def _cut(path):
  models.write_weights(path, {"a": np.zeros(99)})
  path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize("suffix", parts.SUFFIXES)
@pytest.mark.parametrize("damage", [_garbage, _pickled, _cut])
def test_unreadable_files_are_one_sentence(tmp_path, suffix, damage):
  path = tmp_path / f"start{suffix}"
  damage(path)
  said = assert_refused(
      ValueError, "cannot be read .*: give a file", models.read_weights, path
  )
  assert str(path) in said and "pickle" not in said


def test_other_endings_are_refused(tmp_path):
  for call in (models.read_weights, lambda p: models.write_weights(p, {})):
    with pytest.raises(ValueError, match=".npz.*.safetensors"):
      call(tmp_path / "weights.pt")


def changed(**changes):
  named = {name.replace("_", "/"): value for name, value in changes.items()}
  return {k: v for k, v in (WEIGHTS | named).items() if v is not None}


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"hidden_kernel": None}, "differ in hidden/kernel"),
        ({"extra_w": np.zeros(1)}, "differ in extra/w"),
        (
            {"hidden_kernel": np.zeros((6, 4), np.float32)},
            "as float32[6, 4] and the network as float32[4, 6]",
        ),
        ({"hidden_kernel": np.zeros((4, 6), np.int32)}, "as int32[4, 6]"),
        ({"hidden_kernel": np.full((4, 6), np.inf)}, "NaN or infinity"),
        ({"hidden_kernel": np.full((4, 6), 1e300)}, "NaN or infinity"),
    ],
)
def test_weights_that_do_not_fit_are_refused(changes, text):
  with pytest.raises(ValueError, match=re.escape(text)):
    models.start_from(layered(), changed(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"head_kernel": np.zeros((6, 9), np.float32)},
        {"head_kernel": None, "head_bias": None},
        {"head_bias": None},
    ],
)
def test_a_head_that_does_not_fit_is_drawn_anew(changes):
  model = models.start_from(layered(), changed(**changes))
  a, b = (model.init(jax.random.key(i)) for i in (0, 1))
  assert (a["head"]["kernel"] != b["head"]["kernel"]).all()
  for params in (a, b):
    np.testing.assert_array_equal(
        params["hidden"]["kernel"], WEIGHTS["hidden/kernel"]
    )
  # Weights with a head start a network without one.
  headless = models.start_from(layered(head=False), changed(**changes))
  assert set(parts.by_name(headless.init(jax.random.key(0)))) == {
      "hidden/kernel", *NORM
  }

"""Weights go into a file and come back, and nothing else is taken for them."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import models
from episodic_dp.models import weights

PARAMS = {
    "hidden": {"kernel": np.arange(6.0, dtype=np.float32).reshape(2, 3)},
    "head": {"kernel": np.ones((3, 4), np.float32), "bias": np.zeros(4)},
}
SHAPES = jax.tree.map(
    lambda a: jax.ShapeDtypeStruct(a.shape, jnp.float32), PARAMS
)
NAMES = {"hidden/kernel", "head/kernel", "head/bias"}


@pytest.mark.parametrize("suffix", weights.SUFFIXES)
def test_what_is_written_is_read(tmp_path, suffix):
  path = tmp_path / f"start{suffix}"
  models.write_weights(path, jax.tree.map(jnp.asarray, PARAMS))
  found = models.read_weights(path)
  assert set(found) == NAMES
  np.testing.assert_array_equal(
      found["hidden/kernel"], PARAMS["hidden"]["kernel"]
  )
  other = tmp_path / f"other{'.npz' if suffix != '.npz' else '.safetensors'}"
  models.write_weights(other, PARAMS)
  fitted = [
      weights.fitted(models.read_weights(p), SHAPES, source="x", head="head")
      for p in (path, other)
  ]
  assert weights.digest(fitted[0]) == weights.digest(fitted[1])
  changed = dict(fitted[0]) | {"head/bias": np.ones(4, np.float32)}
  assert weights.digest(fitted[0]) != weights.digest(changed)


def _garbage(path):
  path.write_bytes(b"PK\3\4 no archive" * 9)


def _pickled(path):
  with open(path, "wb") as out:
    np.savez(out, a=np.array([{"an": "object"}], dtype=object))


def _cut(path):
  models.write_weights(path, PARAMS)
  path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize("suffix", weights.SUFFIXES)
@pytest.mark.parametrize("damage", [_garbage, _pickled, _cut])
def test_what_cannot_be_read_is_one_sentence(tmp_path, suffix, damage):
  path = tmp_path / f"start{suffix}"
  damage(path)
  with pytest.raises(ValueError, match="cannot be read .*: give a file") as e:
    models.read_weights(path)
  assert str(path) in str(e.value) and "\n" not in str(e.value)
  assert "pickle" not in str(e.value)


def test_paths_that_lead_nowhere_are_named(tmp_path):
  with pytest.raises(ValueError, match="absent.npz do not exist: give"):
    models.read_weights(tmp_path / "absent.npz")
  for call in (
      lambda p: models.read_weights(p), lambda p: models.write_weights(p, {})
  ):
    with pytest.raises(ValueError, match="neither .npz nor .safetensors"):
      call(tmp_path / "weights.pt")
  with pytest.raises(ValueError, match="no dictionaries of dictionaries"):
    models.write_weights(tmp_path / "a.npz", [np.zeros(2)])


def _changed(**changes):
  found = {
      "hidden/kernel": np.zeros((2, 3), np.float32),
      "head/kernel": np.zeros((3, 4), np.float32),
      "head/bias": np.zeros(4, np.float32),
  } | {name.replace("_", "/"): value for name, value in changes.items()}
  return {name: value for name, value in found.items() if value is not None}


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"hidden_kernel": None}, "start lacks 'hidden/kernel': give weights"),
        ({"extra_w": np.zeros(1)}, "start has 'extra/w', which it does not"),
        (
            {"hidden_kernel": np.zeros((3, 2), np.float32)},
            "has 'hidden/kernel' as float32[3, 2] and the network as"
            " float32[2, 3]",
        ),
        (
            {"hidden_kernel": np.zeros((2, 3), np.int32)},
            "has 'hidden/kernel' as int32[2, 3]",
        ),
        (
            {"hidden_kernel": np.full((2, 3), np.inf)},
            "holds NaN or infinity in 'hidden/kernel'",
        ),
        (
            {"hidden_kernel": np.full((2, 3), 1e300)},
            "holds NaN or infinity in 'hidden/kernel'",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(changes, sentence):
  with pytest.raises(ValueError, match=re.escape(sentence)):
    weights.fitted(_changed(**changes), SHAPES, source="start", head="head")


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float64, np.float32, jnp.bfloat16]
)
def test_other_floats_become_the_networks(dtype):
  given = _changed(hidden_kernel=np.full((2, 3), 0.5, dtype))
  found = weights.fitted(given, SHAPES, source="start", head="head")
  assert found["hidden/kernel"].dtype == np.float32
  np.testing.assert_array_equal(found["hidden/kernel"], 0.5)


def test_another_head_is_left_out():
  body = {"hidden/kernel"}
  for changes in (
      {"head_kernel": np.zeros((3, 9), np.float32)},
      {"head_kernel": None, "head_bias": None},
      {"head_bias": None},
  ):
    found = weights.fitted(
        _changed(**changes), SHAPES, source="start", head="head"
    )
    assert set(found) == body
  headless = {"hidden": SHAPES["hidden"]}
  found = weights.fitted(_changed(), headless, source="start", head="head")
  assert set(found) == body
  assert set(
      weights.fitted(_changed(), SHAPES, source="start", head="head")
  ) == NAMES


def test_the_digest_of_shapes_sees_names_and_shapes_alone():
  digest = weights.shapes_digest(SHAPES)
  assert weights.shapes_digest(jax.tree.map(jnp.zeros_like, SHAPES)) == digest
  other = dict(SHAPES) | {"hidden": {"w": SHAPES["hidden"]["kernel"]}}
  assert weights.shapes_digest(other) != digest

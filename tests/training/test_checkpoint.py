"""Checkpoints: what is kept, and that damage is noticed."""


import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import errors
from episodic_dp.training import checkpoint
from tests.refusals import assert_refused


def _arrays(value):
  params = {"w": jnp.full((3, 2), value), "b": jnp.arange(2.0) * value}
  rest = {"opt_state": optax.adam(0.1).init(params), "step": jnp.int32(value)}
  return params, rest


def _equal(a, b):
  leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
  return all(
      np.asarray(x).dtype == np.asarray(y).dtype and np.array_equal(x, y)
      for x, y in leaves
  )


@pytest.fixture
def checkpoints(tmp_path):
  return checkpoint.Checkpoints(tmp_path)


def test_restores_what_was_saved_and_parameters_alone(tmp_path, checkpoints):
  params, rest = _arrays(2)
  checkpoints.save(2, params, rest)
  again = checkpoint.Checkpoints(tmp_path)
  zeros = jax.tree.map(jnp.zeros_like, (params, rest))
  assert _equal(again.restore(2, *zeros), (params, rest))
  alone, nothing = again.restore(2, zeros[0])
  assert _equal(alone, params) and nothing is None


def test_keeps_the_latest_and_the_five_best_also_after_a_restart(tmp_path):
  accuracies = {1: 0.9, 2: 0.2, 3: 0.5, 4: 0.6, 5: None, 6: 0.7, 7: 0.8, 8: 0.1}
  for step, accuracy in accuracies.items():
    # A new object each time: what is kept must not depend on its memory.
    checkpoints = checkpoint.Checkpoints(tmp_path)
    checkpoints.save(step, *_arrays(step), quality=accuracy)
  checkpoints = checkpoint.Checkpoints(tmp_path)
  assert checkpoints.steps() == (1, 3, 4, 6, 7, 8)
  assert checkpoints.latest() == 8
  assert checkpoints.best() == (
      (1, 0.9), (7, 0.8), (6, 0.7), (4, 0.6), (3, 0.5)
  )


def test_saving_a_step_again_changes_nothing(checkpoints):
  checkpoints.save(1, *_arrays(1))
  checkpoints.save(1, *_arrays(2))
  assert _equal(checkpoints.restore(1, _arrays(0)[0])[0], _arrays(1)[0])


def test_a_key_cannot_be_saved(checkpoints):
  with pytest.raises(TypeError):
    checkpoints.save(1, {"k": jax.random.key(0)}, {})


@pytest.mark.parametrize("damage", ["cut", "empty", "of another step"])
def test_damage_is_one_sentence_and_loses_nothing(
    tmp_path, checkpoints, damage
):
  for step in (1, 2):
    checkpoints.save(step, *_arrays(step), quality=0.5)
  first, second = (
      pathlib.Path(checkpoints.folder / f"{step}.npz") for step in (1, 2)
  )
  whole = second.read_bytes()
  second.write_bytes({
      "cut": whole[: len(whole) // 2],
      "empty": b"",
      "of another step": first.read_bytes(),
  }[damage])
  before = sorted(checkpoints.folder.iterdir())
  again = checkpoint.Checkpoints(tmp_path)
  said = assert_refused(
      errors.RunError, "move it away", again.restore, 2, *_arrays(0)
  )
  assert str(checkpoints.folder / "2.npz") in said
  assert sorted(checkpoints.folder.iterdir()) == before
  assert _equal(again.restore(1, *_arrays(0)), _arrays(1))


def test_a_flipped_byte_is_noticed_or_changes_nothing(checkpoints):
  checkpoints.save(1, *_arrays(1), quality=0.5)
  path, about = pathlib.Path(checkpoints.folder / "1.npz"), checkpoints.about(1)
  content, refused = path.read_bytes(), 0
  for place in range(3, len(content), 37):
    flipped = bytearray(content)
    flipped[place] ^= 0xFF
    path.write_bytes(flipped)
    try:
      assert _equal(checkpoints.restore(1, *_arrays(0)), _arrays(1))
      assert checkpoints.about(1) == about
    except errors.RunError:
      refused += 1
  assert refused > 20


def test_what_is_stored_with_it_is_read_back(tmp_path, checkpoints):
  ledger = {"entries": [{"steps": 1, "rate": 0.1 + 0.2}]}
  checkpoints.save(
      1, *_arrays(1), ledger=ledger, seal=lambda *held: str(held)
  )
  again = checkpoint.Checkpoints(tmp_path)
  assert again.about(1)["ledger"] == ledger
  about = again.about(1)
  assert about["seal"] == str((1, about["digest"]))


def test_small_types_are_kept(checkpoints):
  params = {"w": jnp.arange(3, dtype=jnp.bfloat16)}
  checkpoints.save(1, params, {})
  assert _equal(checkpoints.restore(1, params, {})[0], params)


@pytest.mark.parametrize("shape", [(4, 2), (3, 3), (6,)])
def test_another_model_is_refused(checkpoints, shape):
  checkpoints.save(1, *_arrays(1))
  params, rest = _arrays(1)
  params["w"] = jnp.zeros(shape)
  with pytest.raises(errors.RunError, match="cannot be read"):
    checkpoints.restore(1, params, rest)

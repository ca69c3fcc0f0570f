"""Checkpoints: what is kept, and that damage is noticed."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import errors
from episodic_dp import training
from episodic_dp.training import checkpoint


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


def test_restores_what_was_saved_and_parameters_alone(tmp_path):
  params, rest = _arrays(2)
  training.Checkpoints(tmp_path).save(2, params, rest)
  again = training.Checkpoints(tmp_path)
  zeros = jax.tree.map(jnp.zeros_like, (params, rest))
  assert _equal(again.restore(2, *zeros), (params, rest))
  alone, nothing = again.restore(2, zeros[0])
  assert _equal(alone, params) and nothing is None


def test_keeps_the_latest_and_the_five_best_also_after_a_restart(tmp_path):
  accuracies = {1: 0.9, 2: 0.2, 3: 0.5, 4: 0.6, 5: None, 6: 0.7, 7: 0.8, 8: 0.1}
  for step, accuracy in accuracies.items():
    # A new manager each time: what is kept must not hang on its memory.
    checkpoints = training.Checkpoints(tmp_path)
    checkpoints.save(step, *_arrays(step), quality=accuracy)
    checkpoints.close()
  checkpoints = training.Checkpoints(tmp_path, read_only=True)
  assert checkpoints.steps() == (1, 3, 4, 6, 7, 8)
  assert checkpoints.latest() == 8
  assert checkpoints.best() == (
      (1, 0.9), (7, 0.8), (6, 0.7), (4, 0.6), (3, 0.5)
  )


def test_saving_a_step_again_changes_nothing(tmp_path):
  checkpoints = training.Checkpoints(tmp_path)
  checkpoints.save(1, *_arrays(1))
  checkpoints.save(1, *_arrays(2))
  assert _equal(checkpoints.restore(1, _arrays(0)[0])[0], _arrays(1)[0])


def test_host_copies_do_not_follow_their_buffer():
  source = np.zeros(3)
  copy = checkpoint.to_host({"a": source})
  source[:] = 1
  assert not copy["a"].any()


def test_a_key_cannot_be_saved(tmp_path):
  with pytest.raises(TypeError):
    training.Checkpoints(tmp_path).save(1, {"k": jax.random.key(0)}, {})


def _largest_file(folder):
  files = [p for p in pathlib.Path(folder).rglob("*") if p.is_file()]
  return max(files, key=lambda p: p.stat().st_size)


def _flip(path):
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 0xFF
  path.write_bytes(content)


def _cut(path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [_flip, _cut, pathlib.Path.unlink])
def test_damage_is_one_sentence_and_loses_nothing(tmp_path, damage):
  checkpoints = training.Checkpoints(tmp_path)
  for step in (1, 2):
    checkpoints.save(step, *_arrays(step), quality=0.5)
  checkpoints.close()
  damage(_largest_file(checkpoints.folder / "2"))
  before = sorted(checkpoints.folder.rglob("*"))
  again = training.Checkpoints(tmp_path)
  with pytest.raises(errors.RunError, match="move this folder away") as caught:
    again.restore(2, *_arrays(0))
  text = str(caught.value)
  assert str(checkpoints.folder / "2") in text and "step 1" in text
  assert "\n" not in text
  assert sorted(checkpoints.folder.rglob("*")) == before
  assert _equal(again.restore(1, *_arrays(0)), _arrays(1))


def test_stored_digest_is_compared(tmp_path):
  checkpoints = training.Checkpoints(tmp_path)
  checkpoints.save(1, *_arrays(1))
  checkpoints.close()
  digests = [p for p in checkpoints.folder.rglob("digest/*") if p.is_file()]
  text = digests[0].read_text()
  digests[0].write_text(text.replace(checkpoint.digest(_arrays(1)[0]), "0"))
  with pytest.raises(errors.RunError, match="differ from what was saved"):
    training.Checkpoints(tmp_path).restore(1, *_arrays(0))


def test_ledgers_are_read_back_and_only_where_there_is_one(tmp_path):
  ledger = {"entries": [{"steps": 1, "rate": 0.1 + 0.2}]}
  checkpoints = training.Checkpoints(tmp_path)
  checkpoints.save(1, *_arrays(1), ledger=ledger, quality=0.5)
  checkpoints.save(2, *_arrays(2), quality=0.5)
  checkpoints.close()
  again = training.Checkpoints(tmp_path, read_only=True)
  assert again.ledger(1) == ledger and again.ledger(2) is None


def _replace(path):
  text = path.read_text()
  assert "0.3" in text
  path.write_text(text.replace("0.3", "0.4"))


@pytest.mark.parametrize("damage", [_replace, _cut, pathlib.Path.unlink])
def test_damage_to_the_ledger_is_noticed(tmp_path, damage):
  ledger = {"entries": [{"steps": 1, "rate": 0.3}]}
  checkpoints = training.Checkpoints(tmp_path)
  checkpoints.save(1, *_arrays(1), ledger=ledger)
  checkpoints.close()
  assert training.Checkpoints(tmp_path).ledger(1) == ledger
  damage(checkpoints.folder / "1" / "ledger" / "metadata")
  with pytest.raises(errors.RunError, match="move this folder away") as e:
    training.Checkpoints(tmp_path).ledger(1)
  assert "\n" not in str(e.value)
  # The model is there for whoever only evaluates it.
  assert _equal(
      training.Checkpoints(tmp_path).restore(1, _arrays(0)[0])[0],
      _arrays(1)[0],
  )


def test_another_model_is_refused(tmp_path):
  checkpoints = training.Checkpoints(tmp_path)
  checkpoints.save(1, *_arrays(1))
  params, rest = _arrays(1)
  params["w"] = jnp.zeros((4, 2))
  with pytest.raises(errors.RunError, match="cannot be read"):
    checkpoints.restore(1, params, rest)


@pytest.mark.parametrize("content", [b"", b"{"])
def test_damaged_accuracy_is_one_sentence_and_can_be_moved_away(
    tmp_path, content
):
  checkpoints = training.Checkpoints(tmp_path)
  for step in (1, 2):
    checkpoints.save(step, *_arrays(step), quality=0.5)
  checkpoints.close()
  (checkpoints.folder / "2" / "metrics" / "metrics").write_bytes(content)
  with pytest.raises(errors.RunError, match="move this folder away") as caught:
    training.Checkpoints(tmp_path)
  assert str(checkpoints.folder / "2") in str(caught.value)
  (checkpoints.folder / "2").rename(tmp_path / "damaged")
  assert training.Checkpoints(tmp_path).best() == ((1, 0.5),)

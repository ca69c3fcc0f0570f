"""The secret key: where it lies, who reads it, what happens without it."""

import hashlib
import json
import stat

import jax
import numpy as np
import pytest

from episodic_dp import errors
from episodic_dp.training import keys

_PARTS = {"data": "5a", "release": "7f"}
_CONDITIONS = {"jax": "0.0"}


def _create(folder, **options):
  return keys.create(folder, _PARTS, _CONDITIONS, **options)


def _words(key):
  return np.asarray(jax.random.key_data(key.jax_key())).tolist()


def _mode(path):
  return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_reads_it(tmp_path):
  (tmp_path / "private").mkdir(mode=0o755)
  key = _create(tmp_path)
  keys.write(tmp_path, key)
  assert _mode(keys.path(tmp_path)) == 0o600
  assert _mode(keys.path(tmp_path).parent) == 0o700


def test_loaded_as_created_and_never_twice_the_same(tmp_path):
  first = _create(tmp_path / "a")
  second = _create(tmp_path / "b")
  assert keys.load(tmp_path / "a") == first
  assert first.secret != second.secret and _words(first) != _words(second)


def test_all_bits_come_from_the_system_and_none_is_shown(tmp_path, monkeypatch):
  given = bytes(range(100, 132))
  monkeypatch.setattr(keys.secrets, "token_bytes", lambda n: given[:n])
  key = _create(tmp_path)
  assert key.secret == given
  assert given.hex() not in repr(key) and repr(given)[2:-1] not in repr(key)


def test_seeded_keys_are_reproducible_and_use_the_whole_seed(tmp_path):
  made = [
      _create(tmp_path / str(i), private_seed=seed)
      for i, seed in enumerate((5, 5, 6, 5 + 2**32, -5))
  ]
  assert _words(made[0]) == _words(made[1])
  assert len({key.secret for key in made}) == 4
  text = b"episodic_dp private seed 5"
  assert made[0].secret == hashlib.sha256(text).digest()


def test_the_same_secret_draws_anew_for_whatever_is_another_run(tmp_path):
  """Nobody compares here: what is drawn differs by itself."""
  key = _create(tmp_path)
  other = keys.Segment(after=0, parts={**_PARTS, "data": "5b"}, conditions={})
  later = keys.Segment(after=4, parts=_PARTS, conditions=_CONDITIONS)
  histories = [
      key,
      keys.RunKey(secret=key.secret, seeded=False, segments=(other,)),
      key.changed(other),
      key.changed(later),
      key.changed(later).changed(other),
  ]
  assert len({tuple(_words(k)) for k in histories}) == len(histories)
  # Where it was traced is no part of what it is.
  moved = keys.Segment(after=0, parts=_PARTS, conditions={"jax": "9"})
  same = keys.RunKey(secret=key.secret, seeded=False, segments=(moved,))
  assert _words(same) == _words(key)


def test_an_existing_key_is_not_overwritten(tmp_path):
  before = _create(tmp_path)
  with pytest.raises(errors.RunError, match="another --workdir"):
    _create(tmp_path)
  assert keys.load(tmp_path) == before


def _refused(folder):
  with pytest.raises(errors.RunError, match="put the file back") as caught:
    keys.load(folder)
  assert str(keys.path(folder)) in str(caught.value)
  assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"12ab", b"\xff\xfe", b"0" * 16, b"0123456789abcdef\n", b"{}", b"[]",
     b"[" * 100_000, b'{"secret": 5}'],
)  # fmt: skip
def test_what_is_no_key_is_one_sentence(tmp_path, content):
  _create(tmp_path)
  keys.path(tmp_path).write_bytes(content)
  _refused(tmp_path)


def test_every_changed_byte_is_found(tmp_path):
  _create(tmp_path)
  whole = keys.path(tmp_path).read_bytes()
  rng = np.random.default_rng(0)
  for place in range(len(whole)):
    damaged = bytearray(whole)
    damaged[place] ^= int(rng.integers(1, 256))
    keys.path(tmp_path).write_bytes(damaged)
    _refused(tmp_path)
  for cut in (1, 10, len(whole) // 2):
    keys.path(tmp_path).write_bytes(whole[:-cut])
    _refused(tmp_path)
  keys.path(tmp_path).write_bytes(whole + b"\n")
  _refused(tmp_path)


def test_the_secret_of_another_run_is_found(tmp_path):
  """Put into a file whose form is whole."""
  first, second = _create(tmp_path / "a"), _create(tmp_path / "b")
  text = keys.path(tmp_path / "a").read_text()
  mixed = text.replace(first.secret.hex(), second.secret.hex())
  assert json.loads(mixed)["secret"] == second.secret.hex()
  keys.path(tmp_path / "a").write_text(mixed)
  _refused(tmp_path / "a")


def test_missing_key_is_one_sentence(tmp_path):
  with pytest.raises(errors.RunError, match="is missing: put the file back"):
    keys.load(tmp_path)


def test_a_seal_tells_steps_checkpoints_and_histories_apart(tmp_path):
  key = _create(tmp_path)
  later = key.changed(keys.Segment(after=4, parts=_PARTS, conditions={}))
  digests = {"params": "00", "rest": "11"}
  assert later.seal(4, digests, segments=1) == key.seal(4, digests)
  seals = {
      key.seal(4, digests),
      key.seal(5, digests),
      key.seal(4, digests | {"rest": "12"}),
      later.seal(4, digests),
      _create(tmp_path / "b").seal(4, digests),
  }
  assert len(seals) == 5

"""The secret key: where it lies, who reads it, what happens without it."""

import hashlib
import stat

import jax
import numpy as np
import pytest

from episodic_dp.training import errors
from episodic_dp.training import keys


def _words(key):
  return np.asarray(jax.random.key_data(key)).tolist()


def _mode(path):
  return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_reads_it(tmp_path):
  (tmp_path / "private").mkdir(mode=0o755)
  keys.create(tmp_path)
  assert _mode(keys.path(tmp_path)) == 0o600
  assert _mode(keys.path(tmp_path).parent) == 0o700


def test_loaded_as_created_and_never_twice_the_same(tmp_path):
  first = keys.create(tmp_path / "a")
  second = keys.create(tmp_path / "b")
  assert _words(keys.load(tmp_path / "a")) == _words(first)
  assert _words(first) != _words(second)


def test_all_64_bits_come_from_the_system(tmp_path, monkeypatch):
  given = bytes.fromhex("fedcba9876543210")
  monkeypatch.setattr(keys.secrets, "token_bytes", lambda n: given[:n])
  assert _words(keys.create(tmp_path)) == [0xFEDCBA98, 0x76543210]


def test_seeded_keys_are_reproducible_and_use_the_whole_seed(tmp_path):
  made = [
      _words(keys.create(tmp_path / str(i), private_seed=seed))
      for i, seed in enumerate((5, 5, 6, 5 + 2**32, -5))
  ]
  assert made[0] == made[1]
  assert len({tuple(words) for words in made}) == 4
  text = b"episodic_dp private seed 5"
  data = np.asarray(made[0], ">u4").tobytes()
  assert data == hashlib.sha256(text).digest()[:8]


def test_an_existing_key_is_not_overwritten(tmp_path):
  before = keys.create(tmp_path)
  with pytest.raises(errors.RunError, match="another --workdir"):
    keys.create(tmp_path)
  assert _words(keys.load(tmp_path)) == _words(before)


@pytest.mark.parametrize(
    "content", [b"", b"12ab", b"g" * 16 + b"\n", b"\xff\xfe", b"0" * 16]
)
def test_damaged_key_is_one_sentence(tmp_path, content):
  keys.create(tmp_path)
  keys.path(tmp_path).write_bytes(content)
  with pytest.raises(errors.RunError, match="put the file back") as caught:
    keys.load(tmp_path)
  assert str(keys.path(tmp_path)) in str(caught.value)
  assert "\n" not in str(caught.value)


def test_missing_key_is_one_sentence(tmp_path):
  with pytest.raises(errors.RunError, match="is missing: put the file back"):
    keys.load(tmp_path)

"""The secret key, searched for in all that a run writes and prints."""

import logging as python_logging
import stat

from absl import logging
import jax
import numpy as np
import pytest

from episodic_dp import private
from episodic_dp import training
from episodic_dp.training import keys
from episodic_dp.training import metrics
from episodic_dp.training import process_times
from tests.training import secret_search as search
from tests.training import tiny_run

STEPS = 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
  """A run with a key of the system: its folder, and what it printed."""
  folder, printed = tmp_path_factory.mktemp("run"), []

  class Keeping(python_logging.Handler):

    def emit(self, record):
      printed.append(self.format(record))

  handler, root = Keeping(level=0), python_logging.getLogger()
  logger = logging.get_absl_logger()
  level = logger.level
  logger.setLevel(python_logging.DEBUG)
  root.addHandler(handler)
  try:
    spec = tiny_run.spec(STEPS, diagnostics=True, seed=None)
    result = training.train(spec, folder)
    printed.append(training.reporting.summary(result, STEPS))
    printed.append(repr(result))
  finally:
    root.removeHandler(handler)
    logger.setLevel(level)
  return folder, "\n".join(printed)


def test_no_secret_is_in_any_file_or_line_of_a_run(finished):
  folder, printed = finished
  secrets = search.secrets_of_run(keys.load(folder), STEPS)
  texts = search.public_bytes(folder) | {"the log": printed.encode()}
  # All of it was looked at.
  names = " ".join(texts)
  for part in ("metrics.jsonl", "config.json", "guarantee.json", "tensorboard",
               ".png", "arrays of checkpoints/4/params",
               "arrays of checkpoints/4/rest"):  # fmt: skip
    assert part in names
  assert sum(map(len, texts.values())) > 10_000 and "step" in printed
  assert search.searched(texts, secrets) == []
  # The search sees the key where it is.
  kept = {"its file": keys.path(folder).read_bytes()}
  assert search.searched(kept, secrets)


def test_only_the_owner_reads_what_is_private(finished):
  folder, _ = finished
  mode = lambda path: stat.S_IMODE(path.stat().st_mode)  # noqa: E731
  assert mode(folder / keys.FOLDER) == 0o700
  assert mode(keys.path(folder)) == 0o600
  inside = {path.name for path in (folder / keys.FOLDER).iterdir()}
  assert inside == {keys.FILE, process_times.FILE, "diagnostics.jsonl"}


def test_diagnostics_are_nowhere_else(finished):
  folder, _ = finished
  lines = metrics.read(folder / keys.FOLDER / "diagnostics.jsonl")
  assert len(lines) == STEPS and "private/norm" in lines[0]
  texts = search.public_bytes(folder)
  found = [where for where, content in texts.items() if b"private/" in content
           and where not in ("the names of files", "config.json")]  # fmt: skip
  assert found == []


_WORDS = np.asarray([0xFEDCBA98, 0x76543210], np.uint32)
_PLANTED = {"the key": _WORDS}


@pytest.mark.parametrize("how", sorted(search.encodings(_WORDS)))
def test_a_planted_key_is_found_however_it_is_written(how, tmp_path):
  leak = b'{"step": 1, "note": "' + search.encodings(_WORDS)[how] + b'"}\n'
  (tmp_path / "metrics.jsonl").write_bytes(leak)
  found = search.searched(search.public_bytes(tmp_path), _PLANTED)
  assert f"the key is in metrics.jsonl, {how}" in found


def test_a_key_in_a_checkpoint_is_found_though_it_is_compressed(tmp_path):
  key = private.secret_key(b"\xfe\xdc\xba\x98vT2\x10")
  checkpoints = training.Checkpoints(tmp_path)
  rest = {"step": np.int32(1), "key": jax.random.key_data(key)}
  checkpoints.save(1, {"w": np.zeros(3, np.float32)}, rest)
  checkpoints.close()
  found = search.searched(search.public_bytes(tmp_path), _PLANTED)
  where = "the arrays of checkpoints/1/rest"
  assert f"the key is in {where}, little-endian" in found


def test_text_forms_of_a_key_are_found():
  key = private.secret_key(b"\xfe\xdc\xba\x98vT2\x10")
  words = jax.random.key_data(key)
  for text in (repr(key), str(words), repr(np.asarray(words).tolist())):
    assert search.searched({"a log": text.encode()}, _PLANTED)

"""Secrets of a run, searched for in all that it writes and prints."""

import io
import logging as python_logging
import re
import stat
import time

from absl import logging
import jax
import numpy as np
import pytest

from episodic_dp import private
from episodic_dp import training
from episodic_dp.training import metrics
from episodic_dp.training import resume
from episodic_dp.training import workdir
from tests.training import secret_search as search
from tests.training import tiny_run

STEPS = 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
  """Train with a key of the system: the folder, its key, what was printed."""
  folder, printed = tmp_path_factory.mktemp("run"), io.StringIO()
  handler = python_logging.StreamHandler(printed)
  root = python_logging.getLogger()
  logger = logging.get_absl_logger()
  level = logger.level
  logger.setLevel(python_logging.DEBUG)
  root.addHandler(handler)
  try:
    spec = tiny_run.spec(STEPS, diagnostics=True, seed=None)
    result = training.train(spec, folder)
    print(result, file=printed)
  finally:
    root.removeHandler(handler)
    logger.setLevel(level)
  with workdir.locked(folder) as place:
    return folder, resume.load(place), printed.getvalue()


def test_no_secret_is_in_any_file_or_line_of_a_run(finished):
  folder, key, printed = finished
  secrets = search.secrets_of_run(key, STEPS)
  texts = search.public_bytes(folder) | {"the log": printed.encode()}
  # All of it was looked at.
  names = " ".join(texts)
  for part in ("metrics.jsonl", "config.json", "guarantee.json", "tensorboard",
               ".png", "checkpoints/4.npz"):
    assert part in names
  assert sum(map(len, texts.values())) > 10_000 and "step" in printed
  assert search.searched(texts, secrets) == []
  # Anyone who has the digest of the data can test a guess of them.
  for digest in key.segments[0].fingerprint.values():
    if len(digest) == 64:
      assert not any(digest.encode() in text for text in texts.values())
  # The search sees the key where it is.
  assert search.searched({"its file": key.path.read_bytes()}, secrets)


def test_only_the_owner_reads_what_is_private(finished):
  folder, key, _ = finished
  modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()}
  assert modes[workdir.PRIVATE] == 0o700
  assert stat.S_IMODE(key.path.stat().st_mode) == 0o600
  inside = {path.name for path in (folder / workdir.PRIVATE).iterdir()}
  assert inside == {workdir.KEY, workdir.DIAGNOSTICS}


def test_diagnostics_next_to_an_own_key_are_the_owners(tmp_path):
  key = tmp_path / "mine"
  spec = tiny_run.spec(2, diagnostics=True)
  for _ in range(2):
    tiny_run.train(spec, tmp_path / "run", key_file=key)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes == {
        "run": modes["run"], "mine": 0o600, "mine.diagnostics.jsonl": 0o600
    }
    (tmp_path / "mine.diagnostics.jsonl").chmod(0o644)  # Of an earlier version.


def test_diagnostics_are_nowhere_else(finished):
  folder = finished[0]
  path = folder / workdir.PRIVATE / workdir.DIAGNOSTICS
  lines = metrics.read(path)
  assert [line["step"] for line in lines] == [*range(1, STEPS + 1)]
  assert all("private/norm" in line for line in lines)
  texts = search.public_bytes(folder)
  found = [where for where, text in texts.items() if b"private/" in text]
  assert set(found) <= {"the names of files", "config.json"}


def test_nothing_that_is_published_holds_a_time(finished):
  """The times of steps reveal how many tasks they sampled."""
  texts = search.public_bytes(finished[0])
  del texts["the names of files"]
  assert len(texts) > 6
  for name, content in texts.items():
    text = content.decode("latin-1")
    # Times of today in s, ms, us or ns.
    for digits in re.findall(r"(?<!\d)\d{10}(?:\d{3}){0,3}(?!\d)", text):
      seconds = int(digits) / 10 ** (len(digits) - 10)
      assert abs(seconds - time.time()) > 86400, name
    assert not re.search(r"\d\d:\d\d:\d\d", text), name
    assert "seconds" not in text, name


_WORDS = np.asarray([0xFEDCBA98, 0x76543210], np.uint32)
_PLANTED = {"the key": _WORDS}


@pytest.mark.parametrize("how", sorted(search.encodings(_WORDS)))
def test_a_planted_key_is_found_however_it_is_written(how, tmp_path):
  leak = b'{"step": 1, "note": "' + search.encodings(_WORDS)[how] + b'"}\n'
  (tmp_path / "metrics.jsonl").write_bytes(leak)
  found = search.searched(search.public_bytes(tmp_path), _PLANTED)
  assert f"the key is in metrics.jsonl, {how}" in found


def test_a_key_in_a_checkpoint_is_found(tmp_path):
  key = private.secret_key(b"\xfe\xdc\xba\x98vT2\x10")
  rest = {"step": np.int32(1), "key": jax.random.key_data(key)}
  checkpoints = training.checkpoint.Checkpoints(tmp_path)
  checkpoints.save(1, {"w": np.zeros(3, np.float32)}, rest)
  found = search.searched(search.public_bytes(tmp_path), _PLANTED)
  assert "the key is in checkpoints/1.npz, little-endian" in found

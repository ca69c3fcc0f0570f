"""The secret key, searched for in all that a run writes and prints."""

import base64
import logging as python_logging
import stat

from absl import logging
import jax
import numpy as np
from orbax import checkpoint as ocp
import pytest

from episodic_dp import private
from episodic_dp import training
from episodic_dp.private import keys as private_keys
from episodic_dp.training import keys
from episodic_dp.training import metrics
from tests.training import tiny_run

STEPS = 4


def encodings(words) -> dict[str, bytes]:
  """What two uint32 words may look like.

  Text of one word is enough to be found; of raw bytes both words are needed,
  since four bytes occur by chance.
  """
  words = np.asarray(words, np.uint32)
  big, little = words.astype(">u4").tobytes(), words.astype("<u4").tobytes()
  raw = {
      "big-endian": big,
      "little-endian": little,
      "words swapped": words[::-1].astype(">u4").tobytes(),
      "reversed": big[::-1],
      "as two 64-bit integers": words.astype("<u8").tobytes(),
      "as two floats": words.astype("<f8").tobytes(),
  }
  text = {}
  for name, data in (("big", big), ("little", little)):
    text[f"{name} hex"] = data.hex()
    text[f"{name} HEX"] = data.hex().upper()
    text[f"{name} number"] = str(int.from_bytes(data, "big"))
    text[f"{name} repr"] = repr(data)[2:-1]
    # The characters that depend on these bytes alone, at three alignments.
    for pad in range(3):
      coded = base64.b64encode(b"\0" * pad + data)
      text[f"{name} base64 {pad}"] = coded[-(-8 * pad // 6) : -4].decode()
  for i, word in enumerate(words.tolist()):
    if word >= 10**6:  # Smaller numbers occur by chance.
      text[f"word {i}"] = str(word)
      text[f"word {i} hex"] = f"{word:08x}"
      text[f"word {i} HEX"] = f"{word:08X}"
  return raw | {name: value.encode() for name, value in text.items()}


def secrets_of(key, steps):
  """The key of the run and those derived from it, by name."""
  found = {"the key": key}
  for purpose in range(6):
    found[f"the key of purpose {purpose}"] = jax.random.fold_in(key, purpose)
    for step in range(steps):
      name = f"the key of purpose {purpose} in step {step}"
      found[name] = private_keys.step_key(key, purpose, step)
  return {k: np.asarray(jax.random.key_data(v)) for k, v in found.items()}


def searched(texts, secrets) -> list[str]:
  """Which secret is where, and how it is written.

  Args:
    texts: where -> bytes.
    secrets: name -> two words.
  """
  return [
      f"{name} is in {where}, {how}"
      for name, words in secrets.items()
      for how, pattern in encodings(words).items()
      for where, content in texts.items()
      if pattern in content
  ]


def public_bytes(folder) -> dict[str, bytes]:
  """Every file outside private/; checkpoints also as arrays.

  Orbax compresses, so that the bytes of its files say nothing.
  """
  texts = {
      str(path.relative_to(folder)): path.read_bytes()
      for path in sorted(folder.rglob("*"))
      if path.is_file() and path.relative_to(folder).parts[0] != keys.FOLDER
  }
  # Names are readable too.
  texts["the names of files"] = "\n".join(
      str(path.relative_to(folder)) for path in folder.rglob("*")
  ).encode()
  checkpointer = ocp.StandardCheckpointer()
  for item in sorted((folder / "checkpoints").glob("*/*")):
    if (item / "_METADATA").exists():
      arrays = jax.tree.leaves(checkpointer.restore(item.absolute()))
      where = f"the arrays of {item.relative_to(folder)}"
      texts[where] = b"|".join(np.asarray(a).tobytes() for a in arrays)
  return texts


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
  run_key = keys.load(folder)
  key = run_key.jax_key()
  # The secret that the key is derived from, two words at a time.
  words = np.frombuffer(run_key.secret, ">u4").reshape(-1, 2)
  secret = {f"part {i} of the secret": pair for i, pair in enumerate(words)}
  texts = public_bytes(folder) | {"the log": printed.encode()}
  # All of it was looked at.
  names = " ".join(texts)
  for part in ("metrics.jsonl", "config.json", "guarantee.json", "tensorboard",
               ".png", "arrays of checkpoints/4/params",
               "arrays of checkpoints/4/rest"):  # fmt: skip
    assert part in names
  assert sum(map(len, texts.values())) > 10_000 and "step" in printed
  assert searched(texts, secret | secrets_of(key, STEPS)) == []
  # The search sees the key where it is.
  kept = {"its file": keys.path(folder).read_bytes()}
  assert searched(kept, secret)


def test_only_the_owner_reads_what_is_private(finished):
  folder, _ = finished
  mode = lambda path: stat.S_IMODE(path.stat().st_mode)  # noqa: E731
  assert mode(folder / keys.FOLDER) == 0o700
  assert mode(keys.path(folder)) == 0o600
  inside = {path.name for path in (folder / keys.FOLDER).iterdir()}
  assert inside == {keys.FILE, "diagnostics.jsonl"}


def test_diagnostics_are_nowhere_else(finished):
  folder, _ = finished
  lines = metrics.read(folder / keys.FOLDER / "diagnostics.jsonl")
  assert len(lines) == STEPS and "private/norm" in lines[0]
  texts = public_bytes(folder)
  found = [where for where, content in texts.items() if b"private/" in content
           and where not in ("the names of files", "config.json")]  # fmt: skip
  assert found == []


_WORDS = np.asarray([0xFEDCBA98, 0x76543210], np.uint32)


@pytest.mark.parametrize("how", sorted(encodings(_WORDS)))
def test_a_planted_key_is_found_however_it_is_written(how, tmp_path):
  leak = b'{"step": 1, "note": "' + encodings(_WORDS)[how] + b'"}\n'
  (tmp_path / "metrics.jsonl").write_bytes(leak)
  found = searched(public_bytes(tmp_path), {"the key": _WORDS})
  assert f"the key is in metrics.jsonl, {how}" in found


def test_a_key_in_a_checkpoint_is_found_though_it_is_compressed(tmp_path):
  key = private.secret_key(b"\xfe\xdc\xba\x98vT2\x10")
  checkpoints = training.Checkpoints(tmp_path)
  rest = {"step": np.int32(1), "key": jax.random.key_data(key)}
  checkpoints.save(1, {"w": np.zeros(3, np.float32)}, rest)
  checkpoints.close()
  found = searched(public_bytes(tmp_path), {"the key": _WORDS})
  where = "the arrays of checkpoints/1/rest"
  assert f"the key is in {where}, little-endian" in found


def test_text_forms_of_a_key_are_found():
  key = private.secret_key(b"\xfe\xdc\xba\x98vT2\x10")
  words = jax.random.key_data(key)
  for text in (repr(key), str(words), repr(np.asarray(words).tolist())):
    assert searched({"a log": text.encode()}, {"the key": _WORDS})

"""Search for keys in what a run wrote and printed, in every encoding."""

import base64

import jax
import numpy as np

from episodic_dp.private import keys as private_keys


def encodings(words) -> dict[str, bytes]:
  """Return the forms that two uint32 words may take.

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
  """Return the key of the run and those derived from it, by name."""
  found = {"the key": key}
  for purpose in range(6):
    found[f"the key of purpose {purpose}"] = jax.random.fold_in(key, purpose)
    for step in range(steps):
      name = f"the key of purpose {purpose} in step {step}"
      found[name] = private_keys.step_key(key, purpose, step)
  return {k: np.asarray(jax.random.key_data(v)) for k, v in found.items()}


def searched(texts, secrets) -> list[str]:
  """Say which secret is where, in which form.

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


def secrets_of_run(run_key, steps):
  """Return the secrets of a run, and the words of its own secret."""
  words = np.frombuffer(run_key.secret, ">u4").reshape(-1, 2)
  parts = {f"part {i} of the secret": pair for i, pair in enumerate(words)}
  return parts | secrets_of(run_key.jax_key(), steps)


def public_bytes(folder) -> dict[str, bytes]:
  """Return every file outside private/; checkpoints are not compressed."""
  texts = {
      str(path.relative_to(folder)): path.read_bytes()
      for path in sorted(folder.rglob("*"))
      if path.is_file() and path.relative_to(folder).parts[0] != "private"
  }
  # Names are readable too.
  texts["the names of files"] = "\n".join(
      str(path.relative_to(folder)) for path in folder.rglob("*")
  ).encode()
  return texts

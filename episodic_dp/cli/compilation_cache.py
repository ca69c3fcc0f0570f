"""Programs that JAX compiled are kept on disk between two commands."""

import hashlib
import os
import pathlib
import platform
import sys
import tempfile

from absl import logging

FOLDER = "EPISODIC_DP_CACHE"  # The environment variable that names it.


def use() -> str | None:
  """Lets programs that JAX compiled before be read from a folder.

  The folder is that of the environment variable EPISODIC_DP_CACHE, by default
  episodic_dp/ in the user's cache directory; "off" goes without. A folder that
  JAX was given already (JAX_COMPILATION_CACHE_DIR) stays.

  Returns:
    The folder, or None where there is no cache: none is wanted, or it cannot be
    written.
  """
  jax = sys.modules.get("jax")
  name = "JAX_COMPILATION_CACHE_DIR"
  given = os.environ.get(name) if jax is None else (
      jax.config.jax_compilation_cache_dir
  )
  if given:
    return given
  wanted = os.environ.get(FOLDER, "")
  if wanted == "off":
    return None
  # Compiled for this processor: homes are shared between unlike machines.
  folder = pathlib.Path(wanted or _user_cache() / "episodic_dp") / _processor()
  try:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
      pass
  except OSError as e:
    logging.info(
        "no compilation cache in %s (%s): programs are compiled again; %s names"
        " another folder", folder, e.strerror, FOLDER,
    )
    return None
  if jax is None:  # Imported later, or not at all.
    os.environ[name] = str(folder)
  else:
    jax.config.update("jax_compilation_cache_dir", str(folder))
  return str(folder)


def _user_cache() -> pathlib.Path:
  folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME", ""))
  # A relative one is to be ignored, says the XDG Base Directory Specification.
  if folder.is_absolute():
    return folder
  return pathlib.Path(os.path.expanduser("~")) / ".cache"


def _processor() -> str:
  """A name for what programs are compiled for."""
  text = platform.machine()
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as f:
      told = {s for s in f if s.startswith(("model", "flags", "Features"))}
    text += "".join(sorted(told))
  except OSError:  # Not Linux.
    text += platform.processor()
  return hashlib.sha256(text.encode()).hexdigest()[:16]

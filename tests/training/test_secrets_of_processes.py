"""The key of several processes, searched for wherever others could look.

The first draws it and sends it over the channel of the job; a store keeps it in
`private/` alone, or not at all.
"""

import os
import pathlib
import socket
import subprocess
import sys

import pytest

from episodic_dp.training import keys
from tests.training import secret_search as search

STEPS = 4
_SCRIPT = pathlib.Path(__file__).with_name("two_processes.py")


def _start(workdir, port, process, environment):
  command = [str(_SCRIPT), str(workdir), str(STEPS), str(port), "2",
             str(process), "secret", "wait"]  # fmt: skip
  return subprocess.Popen(
      [sys.executable, *command],
      env=os.environ | environment,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
  )


def _seen_of(process):
  """What others of this machine may see of a process."""
  folder = pathlib.Path("/proc", str(process.pid))
  return {
      f"{name} of {process.pid}": (folder / name).read_bytes()
      for name in ("environ", "cmdline")
  }


def _of_two_processes(workdir, temporary):
  """Where -> bytes: what two processes show, print and leave in their folders.

  Args:
    workdir: of the first; the other one has none.
    temporary: where both keep what they do not want to keep.
  """
  with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
  environment = {
      "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1",
      "TMPDIR": str(temporary), "EPISODIC_DP_CACHE": "off",
  }  # fmt: skip
  two = [
      _start(where, port, i, environment)
      for i, where in enumerate((workdir, "/proc/nowhere"))
  ]
  texts, printed = {}, []
  for process in two:
    lines = []
    while not lines or lines[-1] != "waiting\n":
      lines.append(process.stdout.readline())
      assert lines[-1], process.communicate()[1][-2000:]
    printed += lines
    texts |= _seen_of(process)
  for process in two:  # Each waits for the other to end.
    process.stdin.close()
    process.stdin = None
  for process in two:
    printed += process.communicate(timeout=60)
    assert process.returncode == 0, printed
  texts["what was printed"] = "".join(printed).encode()
  left = [path for path in temporary.rglob("*") if path.is_file()]
  assert not [path for path in left if "episodic_dp" in str(path)]
  return texts | {str(path): path.read_bytes() for path in left}


@pytest.mark.slow  # Two processes.
def test_no_process_shows_the_key(tmp_path):
  """The first writes to a store, by way of a folder of its own."""
  run, temporary = tmp_path / "run", tmp_path / "temporary"
  temporary.mkdir()
  texts = _of_two_processes(f"file://{run}", temporary)
  texts |= search.public_bytes(run)
  key = keys.load(run)
  secrets = search.secrets_of_run(key, STEPS)
  assert not key.seeded
  names = " ".join(texts)
  for part in ("environ", "cmdline", "arrays of checkpoints/4/params",
               "config.json", "guarantee.json", "printed"):  # fmt: skip
    assert part in names
  assert search.searched(texts, secrets) == []
  # The search sees the key where it is.
  kept = {"its file": keys.path(run).read_bytes()}
  assert search.searched(kept, secrets)

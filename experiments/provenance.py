"""Where a result comes from: the code, configuration and statement of its run.

Kept beside the numbers, so that a page of results can say what computed them
and a reader can do it again.
"""

from collections.abc import Mapping, Sequence
import functools
import hashlib
import json
import os
import pathlib
import subprocess
from typing import Any

from episodic_dp import _version
from episodic_dp.output import files
from episodic_dp.training import keys
from episodic_dp.training import metrics
from episodic_dp.training import reporting
from episodic_dp.training import run_log
from episodic_dp.training import workdir as workdir_lib

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = "code.json"
_UNKNOWN = "not recorded"
_DIAGNOSTICS = (
    "private/loss", "private/norm", "private/clipped", "private/clip_norm",
)  # fmt: skip
_LONG = 500  # characters of a hierarchy's sizes that are still written out


@functools.cache
def code() -> str:
  """The commit of this tree, "-dirty" where tracked files were changed.

  Asked once a process, which has imported what it runs by then; outside a
  repository it is the version of the library.
  """
  if (ROOT / ".git").exists():
    # Not tags: a commit is found in any clone.
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty",
               "--abbrev=10", "--exclude=*"]  # fmt: skip
    try:
      done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
      done = None
    if done is not None and done.returncode == 0:
      return done.stdout.strip()
  return f"version {_version.__version__}"


def begin(workdir: str | os.PathLike) -> list[str]:
  """Notes in a work directory which code goes on with it from here.

  Returns:
    The code of every process so far, each once, in order.
  """
  path = pathlib.Path(workdir) / CODE
  if path.exists():
    found = json.loads(path.read_text(encoding="utf-8"))
  else:
    begun = (path.parent / workdir_lib.CONFIG).exists()
    found = [_UNKNOWN] if begun else []
  if code() not in found:
    found.append(code())
    files.write_json(path, found)
  return found


def of_run(workdir: str | os.PathLike, score: str) -> dict[str, Any]:
  """What a finished run leaves beside its scores.

  Args:
    workdir: its folder.
    score: the name of what is validated, "accuracy" say.

  Returns:
    "config", where long sizes of ragged data are their digest; "validation":
    {"steps", "values", "low", "high"} of the public validation tasks;
    "statement", the digest of its guarantee.json; and where the run asked for
    private diagnostics, which no guarantee covers, "diagnostics": {"loss",
    "norm", "clipped", "clip_norm"} of every step, as far as there are any.
  """
  folder = pathlib.Path(workdir)
  name = f"validation_{score}"
  # Without step 0, which the first outcomes do not have and costs nothing.
  lines = [
      line for line in metrics.read(folder / metrics.FILE)
      if name in line and line["step"]
  ]  # fmt: skip
  validated = {"steps": "step", "values": name}
  validated |= {end: f"validation_{end}" for end in ("low", "high")}
  statement = (folder / reporting.GUARANTEE).read_bytes()
  config = json.loads((folder / workdir_lib.CONFIG).read_text("utf-8"))
  sizes = json.dumps(config.get("hierarchy", {}).get("sizes", []))
  if len(sizes) > _LONG:
    config["hierarchy"]["sizes"] = _digest(sizes.encode())
  # The digest of a start tells which weights it holds.
  if config.get("model", {}).get("start"):
    config["model"]["start"] = pathlib.Path(config["model"]["start"]).name
  diagnostics = metrics.read(folder / keys.FOLDER / run_log.DIAGNOSTICS)
  found = {
      "config": config,
      "validation": {
          key: _column(lines, field) for key, field in validated.items()
      },
      "statement": _digest(statement),
  }
  if diagnostics and config.get("private_diagnostics"):
    found["diagnostics"] = {
        field.removeprefix("private/"): _column(diagnostics, field)
        for field in _DIAGNOSTICS
        if field in diagnostics[0]
    }
  return found


def _column(lines: Sequence[Mapping[str, Any]], field: str) -> list[Any]:
  """A field of all lines, rounded to what a picture can show."""
  return [
      float(f"{value:.5g}") if isinstance(value, float) else value
      for value in (line[field] for line in lines)
  ]


def _digest(data: bytes) -> str:
  return f"sha256:{hashlib.sha256(data).hexdigest()}"

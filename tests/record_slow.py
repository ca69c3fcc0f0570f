"""Writes how the last `make test-slow` went: `record_slow.py XML MARKDOWN`.

The XML is what pytest wrote (`--junitxml`). The page holds the date, the
commit, the machine, the counts, the longest tests, those that failed, and those
that were skipped with the reason.
"""

import importlib.metadata
import os
import pathlib
import platform
import subprocess
import sys
from xml.etree import ElementTree

_LONGEST = 5
_PACKAGES = ("jax", "numpy", "scipy")


def commit() -> str:
  """The short hash, and whether the working tree differs from it."""

  def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()

  try:
    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short", "HEAD") + (
        ", with changes" if changed else ""
    )
  except (OSError, subprocess.CalledProcessError):
    return "unknown"


def render(xml: str, *, revision: str, machine: str) -> str:
  """The page, from the text of pytest's XML."""
  suite = next(ElementTree.fromstring(xml).iter("testsuite"))
  cases = list(suite.iter("testcase"))
  name = lambda c: f"{c.get('classname', '')}::{c.get('name')}"  # noqa: E731
  failed = [
      c for c in cases
      if c.find("failure") is not None or c.find("error") is not None
  ]  # fmt: skip
  skipped = [
      (c, why.get("message")) for c in cases
      if (why := c.find("skipped")) is not None
  ]  # fmt: skip
  passed = len(cases) - len(failed) - len(skipped)
  longest = sorted(cases, key=lambda c: -float(c.get("time", 0)))[:_LONGEST]
  lines = [
      "# The slow tests",
      "",
      "The last run of `make test-slow`, which wrote this page.",
      "",
      "| what | |",
      "| --- | --- |",
      f"| began | {suite.get('timestamp', '')[:16].replace('T', ' ')} |",
      f"| commit | {revision} |",
      f"| machine | {machine} |",
      f"| passed | {passed} |",
      f"| failed | {len(failed)} |",
      f"| skipped | {len(skipped)} |",
      f"| took | {float(suite.get('time', 0)):.0f} s |",
      "",
      "| longest | seconds |",
      "| --- | --- |",
      *(f"| `{name(c)}` | {float(c.get('time', 0)):.0f} |" for c in longest),
  ]
  if failed:
    lines += ["", "Failed:", "", *(f"- `{name(c)}`" for c in failed)]
  if skipped:
    lines += ["", "Skipped:", ""]
    lines += [f"- `{name(c)}`: {why}" for c, why in skipped]
  return "\n".join(lines) + "\n"


def main(xml: str, page: str) -> None:
  """Writes the page."""
  versions = [f"{p} {importlib.metadata.version(p)}" for p in _PACKAGES]
  data = "with" if os.environ.get("EPISODIC_DP_DATA") else "without"
  machine = ", ".join([
      f"{os.cpu_count()} CPUs",
      f"Python {platform.python_version()}",
      *versions,
      f"{data} real data",
  ])
  text = pathlib.Path(xml).read_text(encoding="utf-8")
  found = render(text, revision=commit(), machine=machine)
  pathlib.Path(page).write_text(found, encoding="utf-8")
  print(found)


if __name__ == "__main__":
  main(*sys.argv[1:])

"""The script for TPU VMs, run with a gcloud that only notes what it hears."""

import os
import subprocess

import pytest

from launch import job as job_lib
from launch import tpu

# Says a state, or ends a run with a status, each the next of a file's lines.
_GCLOUD = """#!/bin/bash
cd {folder} || exit 1
next() {{
  head -n 1 "$1"
  [ "$(wc -l < "$1")" -le 1 ] || sed -i 1d "$1"
}}
printf '%s\\037' "$@" >> calls; printf '\\036' >> calls
case "$*" in
  *describe*) next states ;;
  *"docker run"*) exit "$(next statuses)" ;;
esac
"""


def _run(tmp_path, statuses, states="READY", runs=1, **options):
  """The exit status, and what gcloud was called for, without describe."""
  gcloud = tmp_path / "gcloud"
  gcloud.write_text(_GCLOUD.format(folder=tmp_path))
  gcloud.chmod(0o700)
  for name, text in (("statuses", statuses), ("states", states)):
    (tmp_path / name).write_text(text.replace(" ", "\n") + "\n")
  job = job_lib.Job(
      name="a",
      runs=tuple(
          job_lib.Run(
              name=f"{i}", arguments=(f"--config=it's {i}",), workdir=""
          )
          for i in range(runs)
      ),
      workdir="",
      processes=1,
  )
  chosen = tpu.Options(tpu="pod", zone="z", image="host/name:tpu", **options)
  done = subprocess.run(
      ["bash", "-c", tpu.render(job, chosen)],
      env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
      capture_output=True,
      text=True,
      timeout=60,
  )
  told = []
  for call in (tmp_path / "calls").read_text().split("\x1e")[:-1]:
    _, _, _, what, _, *flags = call.split("\x1f")
    command = next((f for f in flags if f.startswith("--command=")), "")
    if "docker run" in command:
      told.append(command.partition("name:tpu ")[2].strip())
    elif what != "describe":
      told.append("pull" if "docker pull" in command else what)
  return done.returncode, told


_FIRST = r"train --config=it\'s\ 0 --coordinator=auto"
_AGAIN = f"{_FIRST} --resume=auto"
_MADE = dict(accelerator_type="v5litepod-16", spot=True)


@pytest.mark.parametrize(
    "statuses, status, runs",
    [
        ("0", 0, [_FIRST]),
        ("75 0", 0, [_FIRST, "pull", _AGAIN]),
        ("255 137 0", 0, [_FIRST, "pull", _AGAIN, "pull", _AGAIN]),
        ("1 0", 1, [_FIRST]),  # An error is one again.
        ("75", 75, [_FIRST, *["pull", _AGAIN] * 2]),
    ],
)
def test_a_run_is_started_again_where_that_helps(
    tmp_path, statuses, status, runs
):
  ended, told = _run(tmp_path, statuses, restarts=2)
  assert (ended, told) == (status, ["pull", *runs])


def test_a_tpu_vm_is_made_where_there_is_none_and_deleted_where_asked(tmp_path):
  ended, told = _run(tmp_path, "0", states="\nREADY", delete=True, **_MADE)
  assert (ended, told) == (0, ["create", "pull", _FIRST, "delete"])


def test_one_that_was_taken_away_is_made_again(tmp_path):
  # Whatever its last words were.
  ended, told = _run(tmp_path, "1 0", states="READY PREEMPTED", **_MADE)
  assert (ended, told) == (
      0, ["pull", _FIRST, "delete", "create", "pull", _AGAIN],
  )  # fmt: skip


def test_nothing_is_made_or_deleted_unasked(tmp_path):
  ended, told = _run(tmp_path, "0", states="")
  assert (ended, told) == (1, [])


def test_runs_of_a_sweep_follow_one_another_until_one_fails(tmp_path):
  second = _FIRST.replace("0", "1")
  ended, told = _run(tmp_path, "0 1 0", runs=3, delete=True)
  assert (ended, told) == (1, ["pull", _FIRST, second, "delete"])

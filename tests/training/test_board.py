"""TensorBoard's events: no time in them, and nothing that blocks."""

import os
import pathlib
import struct
import subprocess
import sys
import threading
import time

import pytest
from tensorboardX import record_writer
from tensorboardX.proto import event_pb2

from episodic_dp.training import board


def _events(path):
  """The events of a file, its check values checked."""
  data, found = path.read_bytes(), []
  while data:
    (length,) = struct.unpack("<Q", data[:8])
    (check,) = struct.unpack("<I", data[8:12])
    assert check == record_writer.masked_crc32c(data[:8])
    content, data = data[12 : 12 + length], data[12 + length :]
    (check,) = struct.unpack("<I", data[:4])
    assert check == record_writer.masked_crc32c(content)
    found.append(event_pb2.Event.FromString(content))
    data = data[4:]
  return found


def test_an_event_has_its_step_for_a_time(tmp_path):
  threads = threading.active_count()
  for done in (0, 2):  # The second goes on after step 2.
    writer = board.Board(tmp_path, done=done)
    for step in (done + 1, done + 2, done + 3):
      values = {"step": step, "epsilon": 0.5, "loss": float("inf")}
      writer.add(step, values)
    assert threading.active_count() == threads
    writer.close()
  first, second = sorted(tmp_path.iterdir())
  version, start, *events = _events(second)
  assert version.file_version == "brain.Event:2"
  assert start.step == 3 and start.session_log.status == 1
  assert [event.step for event in events] == [3, 4, 5]
  for event in (*_events(first), version, start, *events):
    assert event.wall_time in (event.step, event.step - 1, 0, 2)
  for event in events:
    (value,) = event.summary.value
    assert (value.tag, value.simple_value) == ("epsilon", 0.5)
  # Nor is a time in the files' names.
  assert str(time.time())[:6] not in first.name + second.name


def test_a_full_disk_is_said_once_and_ends_the_events_alone(tmp_path, caplog):
  caplog.set_level("WARNING", logger="absl")
  name = tmp_path / "events.out.tfevents.0000000000.episodic_dp"
  # A folder that lists nothing, and a file whose disk is full.
  name.symlink_to("/dev/full")
  found = board.Board(_Listing(tmp_path), done=0)
  for step in range(1, 5000):
    found.add(step, {"epsilon": 0.5})
  found.close()
  (told,) = [r.message for r in caplog.records if "TensorBoard" in r.message]
  assert "No space left on device" in told


def test_a_file_in_the_way_is_said(tmp_path, caplog):
  caplog.set_level("WARNING", logger="absl")
  (tmp_path / "tensorboard").write_text("")
  found = board.Board(tmp_path / "tensorboard", done=0)
  found.add(1, {"epsilon": 0.5})
  found.close()
  assert "goes on without TensorBoard" in caplog.text


_RUN = """
import resource, sys
from episodic_dp import training
from tests.training import tiny_run
folder, limit = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
  training.train(tiny_run.spec(200), folder)
except training.RunError as e:
  print("refused:", e)
"""


@pytest.mark.slow  # A process of its own, since the limit holds for all of it.
@pytest.mark.parametrize("limit", [1_000, 12_000])
def test_a_run_that_can_write_no_more_ends_with_a_sentence(tmp_path, limit):
  """As on a full disk; TensorBoard's own thread hung there for ever."""
  root = pathlib.Path(__file__).parents[2]
  done = subprocess.run(
      [sys.executable, "-c", _RUN, str(tmp_path), str(limit)],
      env=os.environ | {"PYTHONPATH": str(root)},
      capture_output=True,
      text=True,
      timeout=300,
  )
  assert done.returncode == 0, done.stderr[-2000:]
  assert done.stdout.startswith("refused: ")
  assert "Traceback" not in done.stderr


class _Listing(type(pathlib.Path())):
  """A folder that seems empty, so that its first file is written again."""

  def glob(self, pattern):
    return iter(())

"""Lines and events of a run: kept whole, read back, without times."""

import json
import struct

import pytest
from tensorboardX.proto import event_pb2

from episodic_dp.training import board as board_lib
from episodic_dp.training import metrics
from tests import processes


@pytest.mark.parametrize("rest", ["", '{"step": 4, "epsi', "\0\0\n", "[]\n"])
def test_lines_after_a_checkpoint_and_half_lines_are_dropped(tmp_path, rest):
  path = tmp_path / metrics.FILE
  lines = [{"step": step, "epsilon": float("inf")} for step in range(4)]
  path.write_text("".join(json.dumps(x | {"epsilon": "inf"}) + "\n"
                          for x in lines) + rest)
  appended = metrics.Lines(path, keep=2)
  appended.add({"step": 3, "epsilon": float("nan")})
  appended.close()
  found = metrics.read(path)
  assert [line["step"] for line in found] == [0, 1, 2, 3]
  assert [line["epsilon"] for line in found] == ["inf"] * 3 + ["nan"]


def _events(path):
  data, found = path.read_bytes(), []
  while data:
    (length,) = struct.unpack("<Q", data[:8])
    found.append(event_pb2.Event.FromString(data[12 : 12 + length]))
    data = data[16 + length :]
  return found


def test_training_is_imported_without_the_writer_of_events():
  # It loads PyTorch, if that is installed.
  done = processes.python(
      "-c", "import sys, episodic_dp.training; print(*sys.modules)"
  )
  assert "episodic_dp.training" in done.stdout.split(), done.stderr
  assert "tensorboardX" not in done.stdout.split()


def test_events_have_steps_for_times(tmp_path):
  for done in (0, 3):
    board = board_lib.Board(tmp_path, done=done)
    board.add({"step": done + 1, "epsilon": 0.5, "worst": float("inf")})
    board.close()
  first, second = map(_events, sorted(tmp_path.iterdir()))
  for events, done in ((first, 0), (second, 3)):
    version, start, event = events
    assert version.file_version == "brain.Event:2"
    # TensorBoard hides what earlier files have from this step on.
    assert (start.step, start.session_log.status) == (done + 1, 1)
    assert event.wall_time == event.step == done + 1
    ((tag, value),) = [(v.tag, v.simple_value) for v in event.summary.value]
    assert (tag, value) == ("epsilon", 0.5)

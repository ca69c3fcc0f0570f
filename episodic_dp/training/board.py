"""TensorBoard's events of a run, without times.

The duration of a step reveals its number of tasks, which is secret. So an
event's `wall_time` is its step, and an event file is named by the steps done
before it.

Import this module where events are written: tensorboardX loads PyTorch, if it
is installed, and clients of object stores.
"""

from collections.abc import Mapping
import math
import struct
from typing import Any

from etils import epath
from tensorboardX import record_writer
from tensorboardX.proto import event_pb2
from tensorboardX.proto import summary_pb2

from episodic_dp.training import metrics

FOLDER = "tensorboard"


class Board(metrics.Appended):
  """A file of TensorBoard's events.

  Args:
    folder: receives the file; see `workdir.folder_of`.
    done: the steps done; later steps of earlier files are hidden.
  """

  def __init__(self, folder: epath.Path, *, done: int):
    super().__init__(folder / f"events.out.tfevents.{done:010d}.episodic_dp")
    self._write(event_pb2.Event(wall_time=done, file_version="brain.Event:2"))
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._write(
        event_pb2.Event(wall_time=done, step=done + 1, session_log=start)
    )

  def add(self, values: Mapping[str, Any]) -> None:
    """Write those values of a step that are finite floats."""
    found = [
        summary_pb2.Summary.Value(tag=name, simple_value=value)
        for name, value in values.items()
        if isinstance(value, float) and math.isfinite(value)
    ]
    summary = summary_pb2.Summary(value=found)
    step = values["step"]
    self._write(event_pb2.Event(wall_time=step, step=step, summary=summary))

  def _write(self, event: event_pb2.Event) -> None:
    """Append a record: its length and bytes, each with a check value."""
    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    self.append(
        length
        + struct.pack("<I", record_writer.masked_crc32c(length))
        + data
        + struct.pack("<I", record_writer.masked_crc32c(data))
    )

"""TensorBoard's events, written without the time.

The time of a step tells how many tasks it drew, which is secret: an event's
`wall_time` is its step, and the name of a file is its number. Events are
written at once and by whoever calls: a thread of its own can die of a full disk
and leave the run waiting for it. They are for looking at, so that a run goes on
without them where they cannot be written.
"""

from collections.abc import Mapping
import math
import pathlib
import struct
from typing import Any, BinaryIO

from absl import logging
from tensorboardX import record_writer
from tensorboardX.proto import event_pb2
from tensorboardX.proto import summary_pb2

_VERSION = "brain.Event:2"


class Board:
  """A file of events.

  Args:
    folder: takes the file; made where it does not exist.
    done: the steps done; what earlier files have of later ones is not shown.
  """

  def __init__(self, folder: pathlib.Path, *, done: int):
    self._folder = folder
    self._file: BinaryIO | None = None
    try:
      folder.mkdir(parents=True, exist_ok=True)
      number = len(list(folder.glob("*tfevents*")))
      name = f"events.out.tfevents.{number:010d}.episodic_dp"
      # Unbuffered: nothing is left to be written, and to fail, when it closes.
      self._file = open(folder / name, "wb", buffering=0)
    except OSError as e:
      self._give_up(e)
    self._write(event_pb2.Event(wall_time=done, file_version=_VERSION))
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._write(
        event_pb2.Event(wall_time=done, step=done + 1, session_log=start)
    )

  def add(self, step: int, values: Mapping[str, Any]) -> None:
    """Writes those values of a step that are finite floats."""
    found = [
        summary_pb2.Summary.Value(tag=name, simple_value=value)
        for name, value in values.items()
        if isinstance(value, float) and math.isfinite(value)
    ]
    summary = summary_pb2.Summary(value=found)
    self._write(event_pb2.Event(wall_time=step, step=step, summary=summary))

  def close(self) -> None:
    """Closes the file."""
    if self._file is not None:
      self._file.close()

  def _write(self, event: event_pb2.Event) -> None:
    """Appends a record: its length and bytes, each with a check value."""
    if self._file is None:
      return
    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    record = b"".join((
        length,
        struct.pack("<I", record_writer.masked_crc32c(length)),
        data,
        struct.pack("<I", record_writer.masked_crc32c(data)),
    ))
    try:
      if self._file.write(record) < len(record):
        raise OSError("cut short")
    except OSError as e:
      self._give_up(e)

  def _give_up(self, error: OSError) -> None:
    logging.warning(
        "%s takes no more events (%s): the run goes on without TensorBoard",
        self._folder,
        error.strerror or error,
    )
    if self._file is not None:
      self._file.close()
    self._file = None

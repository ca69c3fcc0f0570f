"""Processes of a run hear one another live: who is lost, and who just left.

Every process is connected to process 0. Each sends a byte every few seconds. A
process that is killed closes its connection in that moment; one that hangs, or
whose machine is gone, is silent.
"""

from collections.abc import Callable
import contextlib
import socket
import struct
import threading
import time

_EVERY = 5.0  # Seconds between two beats.
_BEAT, _DONE, _FAILED = b".", b"d", b"f"
_NUMBER = struct.Struct("<I")


class Watch:
  """The connections of one process to those that it hears.

  Args:
    limit: seconds of silence after which a process is lost.
    lost: called, by a thread, where one is.
    failed: called where one says that it failed.
  """

  def __init__(
      self,
      limit: float,
      lost: Callable[[], None],
      failed: Callable[[], None],
  ):
    self._limit = limit
    self._lost = lost
    self._failed = failed
    self._peers: list[socket.socket] = []
    self._gone: set[socket.socket] = set()  # Those that said how they end.
    self._changed = threading.Condition()

  def serve(self, others: int, seconds: float) -> int:
    """Waits, in a thread, for so many processes.

    Args:
      others: how many.
      seconds: after which one that has not come is lost.

    Returns:
      The port that they are to connect to.
    """
    ipv6 = socket.has_dualstack_ipv6()
    server = socket.create_server(
        ("", 0),
        family=socket.AF_INET6 if ipv6 else socket.AF_INET,
        dualstack_ipv6=ipv6,
        backlog=others,
    )
    self._run(self._accept, server, others, seconds)
    return server.getsockname()[1]

  def connect(self, host: str, port: int, number: int) -> None:
    """Connects to process 0.

    Args:
      host: where it is.
      port: as `serve` returned there.
      number: of this process.

    Raises:
      OSError: it cannot be reached.
    """
    peer = socket.create_connection((host, port), timeout=self._limit)
    peer.sendall(_NUMBER.pack(number))
    self._add(peer)

  @property
  def over(self) -> bool:
    """Whether all that this process hears have ended, one way or another."""
    with self._changed:
      return bool(self._peers) and len(self._gone) == len(self._peers)

  def end(self, *, failed: bool, seconds: float) -> None:
    """Says how this process ends, and waits until the others have said so.

    Args:
      failed: whether they are to end, too.
      seconds: to wait, at most.
    """
    for peer in self._peers:
      self._say(peer, _FAILED if failed else _DONE)
    with self._changed:
      self._changed.wait_for(
          lambda: len(self._gone) == len(self._peers), seconds
      )

  def _accept(
      self, server: socket.socket, others: int, seconds: float
  ) -> None:
    ends = time.monotonic() + seconds
    come: set[int] = set()
    while len(come) < others:
      server.settimeout(max(0.1, ends - time.monotonic()))
      try:
        peer, _ = server.accept()
        peer.settimeout(self._limit)
        (number,) = _NUMBER.unpack(peer.recv(_NUMBER.size, socket.MSG_WAITALL))
      except TimeoutError:
        if time.monotonic() >= ends:
          self._lost()
          return
      except (OSError, struct.error):
        continue  # Not one of ours.
      else:
        come.add(number)
        self._add(peer)
    server.close()

  def _add(self, peer: socket.socket) -> None:
    peer.settimeout(self._limit)
    with self._changed:
      self._peers.append(peer)
    self._run(self._beat, peer)
    self._run(self._hear, peer)

  def _beat(self, peer: socket.socket) -> None:
    while peer not in self._gone:
      self._say(peer, _BEAT)
      time.sleep(_EVERY)

  def _hear(self, peer: socket.socket) -> None:
    """Until the process says how it ends, or is heard no longer."""
    said = _BEAT
    while said == _BEAT:
      try:
        said = peer.recv(1)
      except OSError:  # Silence, or its machine refuses what is sent.
        said = b""
    with self._changed:
      self._gone.add(peer)
      self._changed.notify_all()
    if said == _FAILED:
      self._failed()
    elif said != _DONE:
      self._lost()

  def _say(self, peer: socket.socket, what: bytes) -> None:
    with contextlib.suppress(OSError):  # Whoever hears it will notice.
      peer.sendall(what)

  def _run(self, target: Callable[..., None], *args: object) -> None:
    threading.Thread(
        target=target, args=args, name="watch", daemon=True
    ).start()

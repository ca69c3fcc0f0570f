"""A connection that does not break for one of its ends.

JAX's client of the coordination service ends its process, with a trace of
native code, in the moment in which the connection to the service breaks, and
has no working way to be told otherwise. So it connects to this process, which
passes all bytes on; where the service is gone the client hears silence, and the
process can end with a sentence.
"""

from collections.abc import Callable
import contextlib
import socket
import threading

_BYTES = 1 << 16


class Tunnel:
  """Passes what connects to a port of this machine on to another address.

  Args:
    address: HOST:PORT.
    broken: called, by a thread, where that end closes a connection that has
      been used.

  Attributes:
    address: where to connect to instead.
  """

  def __init__(self, address: str, broken: Callable[[], None]):
    host, _, port = address.rpartition(":")
    self._target = host.strip("[]"), int(port)
    self._broken = broken
    self._server = socket.create_server(("127.0.0.1", 0))
    self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
    _start(self._accept)

  def _accept(self) -> None:
    while True:
      near, _ = self._server.accept()
      _start(self._connect, near)

  def _connect(self, near: socket.socket) -> None:
    try:
      far = socket.create_connection(self._target)
    except OSError:
      near.close()  # Not there yet: the client tries again.
      return
    for end in (near, far):
      end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _start(self._to_far, near, far)
    self._to_near(near, far)

  def _to_far(self, near: socket.socket, far: socket.socket) -> None:
    with contextlib.suppress(OSError):
      _copy(near, far)
    with contextlib.suppress(OSError):
      far.shutdown(socket.SHUT_WR)

  def _to_near(self, near: socket.socket, far: socket.socket) -> None:
    used = False
    with contextlib.suppress(OSError):
      used = _copy(far, near)
    if used and not _is_closed(near):
      self._broken()
      return  # The client goes on hearing nothing.
    near.close()


def _copy(source: socket.socket, target: socket.socket) -> bool:
  """Until the source ends; whether there was anything."""
  used = False
  while data := source.recv(_BYTES):
    target.sendall(data)
    used = True
  return used


def _is_closed(end: socket.socket) -> bool:
  """Whether the other side of a connection has closed it."""
  try:
    flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
    return not end.recv(1, flags)
  except BlockingIOError:
    return False
  except OSError:
    return True


def _start(target: Callable[..., None], *args: object) -> None:
  threading.Thread(target=target, args=args, name="tunnel", daemon=True).start()

"""A connection that its near end does not see broken."""

import queue
import socket

import pytest

from episodic_dp.cli import tunnel


@pytest.fixture
def ends():
  """(the near end, the far one, what the tunnel told)."""
  told = queue.Queue()
  with socket.create_server(("localhost", 0)) as server:
    port = server.getsockname()[1]
    made = tunnel.Tunnel(f"localhost:{port}", lambda: told.put("broken"))
    host, _, port = made.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as near:
      far, _ = server.accept()
      with far:
        yield near, far, told


def test_bytes_pass_both_ways(ends):
  near, far, told = ends
  for source, target in ((near, far), (far, near)):
    source.sendall(b"x" * 100_000)
    received = 0
    while received < 100_000:
      received += len(target.recv(1 << 16))
  assert told.empty()


def test_a_far_end_that_is_gone_is_told_and_not_seen(ends):
  near, far, told = ends
  far.sendall(b"x")
  assert near.recv(1) == b"x"
  far.close()
  assert told.get(timeout=5) == "broken"
  near.settimeout(0.3)
  with pytest.raises(TimeoutError):  # Not b"", which is an end.
    near.recv(1)


def test_a_near_end_that_closes_is_an_end(ends):
  near, far, told = ends
  far.sendall(b"x")
  assert near.recv(1) == b"x"
  near.close()
  assert far.recv(1) == b""
  far.close()
  with pytest.raises(queue.Empty):
    told.get(timeout=0.3)


def test_where_nobody_listens_the_near_end_may_try_again():
  with socket.create_server(("localhost", 0)) as server:
    port = server.getsockname()[1]
  told = queue.Queue()
  made = tunnel.Tunnel(f"localhost:{port}", lambda: told.put("broken"))
  host, _, near_port = made.address.partition(":")
  with socket.create_connection((host, int(near_port)), timeout=5) as near:
    assert near.recv(1) == b""
  assert told.empty()

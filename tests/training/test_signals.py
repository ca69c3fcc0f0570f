"""What a run remembers of signals, and whom it leaves them to."""

import os
import signal

import pytest

from episodic_dp.training import signals
from episodic_dp.training.processes import Code


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGINT"])
def test_the_first_signal_is_remembered(name):
  number = signal.Signals[name]
  before = signal.getsignal(number)
  with signals.StopSignals() as stop:
    assert stop.code == Code.CONTINUE
    os.kill(os.getpid(), number)
    assert stop.code.stopped == name
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.code.stopped == name
  assert signal.getsignal(number) == before


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_another_ctrl_c_does_not_wait(first):
  with pytest.raises(KeyboardInterrupt), signals.StopSignals():
    os.kill(os.getpid(), first)
    os.kill(os.getpid(), signal.SIGINT)


def test_what_was_ignored_stays_so():
  before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
  try:
    with signals.StopSignals() as stop:
      os.kill(os.getpid(), signal.SIGUSR1)
      assert not stop.code
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
  finally:
    signal.signal(signal.SIGUSR1, before)

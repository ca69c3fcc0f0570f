"""Signals and deadlines."""

import os
import signal
import threading

import pytest

from episodic_dp import errors
from episodic_dp.training import processes
from episodic_dp.training import stopping


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_a_signal_is_remembered_and_its_handler_put_back(name):
  number = signal.Signals[name]
  before = signal.getsignal(number)
  with stopping.StopSignals() as signals:
    assert signals.stop == stopping.Stop.NONE
    os.kill(os.getpid(), number)
    assert signals.stop.reason == name
  assert signal.getsignal(number) == before


def test_a_second_interrupt_does_not_wait():
  with pytest.raises(KeyboardInterrupt):
    with stopping.StopSignals():
      os.kill(os.getpid(), signal.SIGTERM)
      os.kill(os.getpid(), signal.SIGINT)


def test_other_threads_and_ignored_signals_are_left_alone(monkeypatch):
  found = []

  def work():
    with stopping.StopSignals() as signals:
      found.append(signals.stop)

  thread = threading.Thread(target=work)
  thread.start()
  thread.join()
  assert found == [stopping.Stop.NONE]


@pytest.mark.parametrize(
    "text, seconds",
    [("90s", 90), ("55m", 3300), ("11h", 39600), ("1h30m", 5400)],
)
def test_times_are_read(text, seconds):
  assert stopping.time_limit(text) == seconds
  assert 0 < seconds - stopping.deadline(0, seconds) <= 30


@pytest.mark.parametrize("text", ["", "5", "0s", "1m30", "-1s", "1d"])
def test_other_texts_are_refused(text):
  with pytest.raises(errors.RunError, match="90s, 55m, 11h or 1h30m"):
    stopping.time_limit(text)


def test_one_process_agrees_with_itself():
  assert not processes.several() and processes.first()
  assert processes.agreed(stopping.Stop.SIGTERM) == stopping.Stop.SIGTERM
  assert stopping.Stop.NONE.reason == "done"
  (found,) = processes.from_first(lambda: [[1, 2]])
  assert found.tolist() == [1, 2]

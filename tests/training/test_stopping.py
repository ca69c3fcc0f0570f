"""Signals and deadlines."""

from concurrent import futures
import os
import signal

import pytest

from episodic_dp import errors
from episodic_dp.training import processes
from episodic_dp.training import stopping


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_a_signal_is_remembered_and_its_handler_put_back(name):
  number = signal.Signals[name]
  before = signal.getsignal(number)
  with stopping.StopSignals() as signals:
    assert signals.stop == 0
    os.kill(os.getpid(), number)
    assert stopping.REASONS[signals.stop] == name
  assert signal.getsignal(number) == before


def test_a_second_interrupt_does_not_wait():
  with pytest.raises(KeyboardInterrupt):
    with stopping.StopSignals():
      os.kill(os.getpid(), signal.SIGTERM)
      os.kill(os.getpid(), signal.SIGINT)


def test_other_threads_are_left_alone():
  before = signal.getsignal(signal.SIGINT)
  with futures.ThreadPoolExecutor() as pool:
    pool.submit(stopping.StopSignals().__enter__).result()
  assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize(
    "text, seconds",
    [("90s", 90), ("55m", 3300), ("11h", 39600), ("1h30m", 5400)],
)
def test_times_are_read(text, seconds):
  assert 0 < seconds - stopping.deadline(text, 0) <= min(30, 0.1 * seconds)


@pytest.mark.parametrize("text", ["", "5", "0s", "1m30", "-1s", "1d"])
def test_other_texts_are_refused(text):
  with pytest.raises(errors.RunError, match="90s, 55m, 11h or 1h30m"):
    stopping.deadline(text, 0)


def test_one_process_agrees_with_itself():
  assert not processes.several() and processes.first()
  assert processes.gathered(3).tolist() == [3]
  assert processes.from_first(lambda: [1, 2], [0, 0]) == [1, 2]

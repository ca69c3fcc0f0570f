"""The accountant's time, in seconds of processor time (other load apart)."""

import subprocess
import sys
import time

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from experiments.benchmarks import accountant_queries

pytestmark = pytest.mark.slow

_COLD = """
import time
from scipy import fft, special  # Not ours, and most of the time.
start = time.process_time()
from episodic_dp import accounting, plan
loaded = time.process_time()
accounting.epsilon(0.004, 0.2, (1.0, 2.0), steps=10_000, delta=1e-6)
print(loaded - start, time.process_time() - loaded)
"""


def seconds(function):
  start = time.process_time()
  function()
  return time.process_time() - start


def test_cold_start():
  done = subprocess.run(
      [sys.executable, "-c", _COLD], capture_output=True, text=True, check=True
  )
  loading, computing = map(float, done.stdout.split())
  assert loading < 0.5 and computing < 1.0


def test_later_queries_and_calibration():
  h = plan.Hierarchy.regular(
      (400_000, 5, 10), levels=("participant", "class", "image")
  )
  p = plan.SamplingPlan(
      (plan.Poisson(0.004), plan.FixedSize(5), plan.FixedSize(2))
  )
  m = plan.Mechanism(clip_unit="participant", noise_multiplier=1.0)

  def query(steps, delta):
    accounting.guarantee(
      plan.Release(h, p, m), steps=steps, delta=delta, level="image"
    )

  query(10_000, 1e-6)
  assert seconds(lambda: query(9_000, 1e-6)) < 0.15
  assert seconds(lambda: query(9_000, 1e-7)) < 0.15
  assert (
      seconds(
          lambda: accounting.calibrate(
              plan.Release(h, p, m), steps=10_000, epsilon=1.0, delta=1e-7,
              level="image",
          )
      )
      < 3.0
  )


@pytest.mark.parametrize(
    "kinds,target", [("regular", 1.0), ("ragged", 5.0), ("ledger", 0.05)]
)
def test_no_query_is_slow(kinds, target):
  # Three of a list of hundreds in ten, and twice the time: machines are busy.
  seconds, name, _ = accountant_queries.slowest(kinds, every=3)
  assert seconds < 2 * target, name

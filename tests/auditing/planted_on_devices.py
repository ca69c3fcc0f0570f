"""Audits the step over four forced host devices; prints epsilons as JSON.

A script, run by test_planted_sharding.py: the number of devices is fixed when
JAX begins.
"""

import json
import pathlib
import sys

import jax
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from episodic_dp import auditing
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import training
from episodic_dp.private import step as step_lib
from tests.auditing import planted

DEVICES, RELEASES = 4, 300


def remove_the_locks(patch):
  """Leave out the cast of the parameters, with JAX's own rewriting back on.

  Then the gradient of a task is summed over the devices before it is clipped.
  """
  varying, shard_map = step_lib.varying, jax.shard_map

  def only_totals(tree):
    return varying(tree) if isinstance(tree, step_lib.Totals) else tree

  def checked(function, **options):
    return shard_map(function, **options | {"check_vma": True})

  patch.setattr(step_lib, "varying", only_totals)
  patch.setattr(jax, "shard_map", checked)


def sums(audit, side, seed):
  """One release after the other, float64[releases].

  The learner does not learn, so that steps of one run are independent.
  """
  step = audit.step(side, mesh=training.make_mesh(DEVICES))
  key = jax.random.key(seed)
  state = private.init(key, audit.learner, planted.OPTIMIZER, audit.mechanism)
  found = []
  for _ in range(RELEASES):
    state, _ = step(state)
    # Waited for: steps in a queue starve one another's collectives on a CPU.
    found.append(float(state.opt_state[0][0]))
  return np.asarray(found) * step_lib.expected_clip_units(audit.release(side))


def measure(audit):
  """The lower bound on epsilon of one step."""
  return auditing.measure_epsilon(
      sums(audit, audit.with_record, 0), sums(audit, audit.without_record, 1),
      delta=planted.DELTA,
  ).epsilon


def main():
  assert jax.device_count() == DEVICES
  # One pulls a thousand times as hard as those on the other devices, and the
  # other way.
  audit = planted.of_participants(
      [[1e3]] + [[-1.0]] * DEVICES, plan.FixedSize(DEVICES), steps=1,
      noise_multiplier=4.0,
  )
  found = {"claim": audit.claim(), "sound": measure(audit)}
  with pytest.MonkeyPatch.context() as patch:
    remove_the_locks(patch)
    found["planted"] = measure(audit)
  json.dump(found, sys.stdout)


if __name__ == "__main__":
  main()

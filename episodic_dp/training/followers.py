"""The other processes of a run: they step with the first, and write nothing.

The first process sends the key and the state to begin with; after that all of
them compute the same steps together, until one is asked to stop.
"""

from collections.abc import Sequence
import time
from typing import Any

import jax
import numpy as np

from episodic_dp import errors
from episodic_dp import private
from episodic_dp.training import checkpoint as checkpoint_lib
from episodic_dp.training import identity as identity_lib
from episodic_dp.training import processes
from episodic_dp.training import resume
from episodic_dp.training import signals
from episodic_dp.training import spec as spec_lib
from episodic_dp.training import stepping as stepping_lib
from episodic_dp.training import time_limit


def to_arrays(beginning: resume.Beginning) -> list[np.ndarray]:
  """What the first process sends: identity, key's bytes, the state's arrays."""
  state = beginning.state
  identity = np.frombuffer(beginning.identity.digest().encode(), np.uint8)
  data = np.asarray(jax.random.key_data(state.key))
  # As `private.secret_key` takes them.
  key = np.frombuffer(data.astype(">u4").tobytes(), np.uint8)
  leaves = jax.tree.leaves(_without_key(state))
  return [identity, key, *checkpoint_lib.to_host(leaves)]


def follow(
    spec: spec_lib.TrainingSpec,
    broadcast: processes.Broadcast,
    limit: time_limit.TimeLimit | None,
) -> spec_lib.Result:
  """Takes the steps of the first process.

  Args:
    spec: what to run.
    broadcast: by which the first tells how to begin.
    limit: as for `loop.train`.

  Raises:
    RunError: the first process failed, or has another configuration, other
      data or another learner.
  """
  began = time.monotonic()
  identity, *arrays = broadcast.receive(spec.config)
  state = _from_arrays(spec, arrays)
  step_fn, done = spec_lib.make_step(spec), int(state.step)
  own = identity_lib.identify(spec, step_fn, state).digest()
  if identity.tobytes().decode() != own:
    processes.agreed(processes.Code.FAILED)
    raise errors.RunError(
        "the data or the code of this process are not those of the first: start"
        " all processes of a run with the same command, data and versions"
    )
  step_fn.compile(state)
  with signals.StopSignals() as stop:
    stepping = stepping_lib.Stepping(done, spec.steps, stop, limit)
    for _ in stepping:
      state, _ = jax.block_until_ready(step_fn(state))
    # The first saves, and may fail at that.
    processes.agreed(processes.Code.CONTINUE)
  return spec_lib.Result(
      steps=stepping.done,
      stopped=stepping.stopped,
      guarantees={},
      seconds=time.monotonic() - began,
      score=None,
  )


def _from_arrays(
    spec: spec_lib.TrainingSpec, arrays: Sequence[np.ndarray]
) -> private.State:
  """The state that `to_arrays` took apart."""
  key, *leaves = arrays
  state = spec_lib.initial_state(spec, private.secret_key(key.tobytes()))
  like, treedef = jax.tree.flatten(_without_key(state))
  # The network has only the bytes of types that NumPy does not know.
  leaves = [a.view(b.dtype) for a, b in zip(leaves, like)]
  return state._replace(**jax.tree.unflatten(treedef, leaves))


def _without_key(state: private.State) -> dict[str, Any]:
  return {k: v for k, v in state._asdict().items() if k != "key"}

"""Where a run begins: its key, its last checkpoint, and what that cost."""

import pathlib
from typing import Any

from absl import logging
import jax
import jax.numpy as jnp

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp.training import checkpoint as checkpoint_lib
from episodic_dp.training import errors
from episodic_dp.training import keys
from episodic_dp.training import metrics as metrics_lib
from episodic_dp.training import spec as spec_lib
from episodic_dp.training import spending
from episodic_dp.training import workdir


def begin(
    spec: spec_lib.TrainingSpec,
    folder: pathlib.Path,
    checkpoints: checkpoint_lib.Checkpoints,
) -> private.State:
  """The state to go on from; writes nothing but the key of a new run.

  Raises:
    RunError: the folder holds another run, or one that cannot be gone on with.
  """
  key = _checked_key(spec, folder, checkpoints)
  state = _restored(spec, folder, checkpoints, key)
  if state.step:
    _check_ledger(spec, checkpoints, int(state.step))
  return state


def beside_params(state: private.State) -> dict[str, Any]:
  """What a checkpoint holds beside the parameters: all but the key."""
  rest = {"opt_state": state.opt_state, "step": state.step}
  return rest | {"clip": state.clip} if state.clip else rest


def _checked_key(
    spec: spec_lib.TrainingSpec,
    folder: pathlib.Path,
    checkpoints: checkpoint_lib.Checkpoints,
) -> jax.Array:
  """Checks that the folder holds this run or none; returns the run's key."""
  last = checkpoints.latest()
  lines = metrics_lib.read(folder / metrics_lib.FILE)
  logged = lines[-1]["step"] if lines else 0
  workdir.check_config(folder, spec.config, clean=logged <= (last or 0))
  if last is None and not lines and not keys.path(folder).exists():
    return keys.create(folder, private_seed=spec.private_seed)
  return keys.load(folder)


def _restored(
    spec: spec_lib.TrainingSpec,
    folder: pathlib.Path,
    checkpoints: checkpoint_lib.Checkpoints,
    key: jax.Array,
) -> private.State:
  """The state of the last checkpoint, or the initial one."""
  state = spec_lib.initial_state(spec, key)
  last = checkpoints.latest()
  if last is None:
    return state
  if last > spec.steps:
    raise errors.RunError(
        f"the run in {folder} has done {last} steps already and the"
        f" configuration allows {spec.steps}: raise config.steps (or the"
        " budget), or evaluate what is there"
    )
  params, rest = checkpoints.restore(last, state.params, beside_params(state))
  logging.info("resumed from step %d in %s", last, folder)
  return state._replace(**jax.tree.map(jnp.asarray, {"params": params, **rest}))


def _check_ledger(
    spec: spec_lib.TrainingSpec,
    checkpoints: checkpoint_lib.Checkpoints,
    steps: int,
) -> None:
  """Refuses a checkpoint whose steps were not taken as this run takes them."""
  folder = checkpoints.folder / str(steps)
  data = checkpoints.ledger(steps)
  if data is None:
    raise errors.RunError(
        f"the checkpoint {folder} has no ledger of what its steps cost, which"
        " earlier versions did not write: finish the run with the version"
        " that started it, or start a new one in another --workdir"
    )
  try:
    ledger = accounting.Ledger.from_dict(data)
  except (plan_lib.PlanError, plan_lib.UnsoundPlanError) as e:
    raise errors.RunError(
        f"the ledger of the checkpoint {folder} is not one of this version"
        f" ({e}): resume with the version that wrote it, or start a new run"
        " in another --workdir"
    ) from e
  if ledger.steps != steps:
    raise checkpoints.unreadable(steps, f"its ledger has {ledger.steps} steps")
  expected = spending.ledger_after(spec, steps)
  field = workdir.first_difference(ledger.as_dict(), expected.as_dict())
  if field is not None:
    name, before, now = field
    raise errors.RunError(
        f"the steps of the checkpoint {folder} were taken with"
        f" {name}={before} and the run is resumed with {now}: resume it with"
        " the data and the configuration that it was started with, or choose"
        " another --workdir"
    )

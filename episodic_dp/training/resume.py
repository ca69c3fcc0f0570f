"""Where a run begins: its key, its last checkpoint, and what that cost."""

from collections.abc import Mapping
import dataclasses
import pathlib
import secrets
from typing import Any

from absl import logging
import jax
import jax.numpy as jnp

from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp.private import state as state_lib
from episodic_dp.training import binding
from episodic_dp.training import checkpoint as checkpoint_lib
from episodic_dp.training import environment
from episodic_dp.training import identity as identity_lib
from episodic_dp.training import keys
from episodic_dp.training import same_run
from episodic_dp.training import spec as spec_lib
from episodic_dp.training import spending
from episodic_dp.training import workdir


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beginning:
  """What a process goes on with.

  Attributes:
    state: before its first step.
    key: the secret of the run, bound to it.
    identity: what determines its steps.
    lineage: a random number for each process that took the run on, this one's
      last: copies of a work directory that were both continued differ in it.
  """

  state: private.State
  key: keys.RunKey
  identity: identity_lib.Identity
  lineage: tuple[str, ...]

  def seal(self, step: int, digests: Mapping[str, str]) -> dict[str, Any]:
    """What a checkpoint holds about the run that wrote it."""
    return {
        "seal": self.key.seal(step, digests),
        "lineage": list(self.lineage),
        "environment": self.identity.environment,
    }


def begin(
    spec: spec_lib.TrainingSpec,
    folder: pathlib.Path,
    checkpoints: checkpoint_lib.Checkpoints,
    step_fn: spec_lib.StepFunction,
) -> Beginning:
  """What to go on from; writes nothing but the key of the run.

  Args:
    spec: the run.
    folder: the work directory, which this process alone uses.
    checkpoints: those in it.
    step_fn: the step of the run.

  Raises:
    RunError: the folder holds another run, or one that cannot be gone on with.
  """
  place = binding.place_of(folder, checkpoints.latest() or 0)
  elsewhere = same_run.check_config(
      folder, spec.config, clean=place.logged <= place.step
  )
  key = None
  if place.step or place.logged or keys.path(folder).exists():
    key = keys.load(folder)
    binding.check_seed(key, spec.private_seed)
  if place.step:
    _check_steps(spec, place)
    _check_ledger(spec, checkpoints, place.step)
  # Its key is of no use: that of the run follows from the step's trace.
  state = spec_lib.initial_state(spec, private.secret_key(bytes(8)))
  identity = identity_lib.identify(spec, step_fn, state)
  lineage: tuple[str, ...] = ()
  if key is None:
    key = keys.create(
        folder,
        identity.parts,
        identity.conditions,
        private_seed=spec.private_seed,
    )
  else:
    before = key
    key = binding.bound(before, identity, place, spec.release.plan)
    if place.step:
      state, run = _restored(checkpoints, before, place, state)
      lineage = tuple(run["lineage"])
      elsewhere = list(dict.fromkeys([
          *environment.differences(run["environment"], identity.environment),
          *elsewhere,
      ]))
    if place.step or place.logged:
      _say_where(spec, identity, place, elsewhere)
    workdir.warn_without_config(folder)
    if key is not before:
      keys.write(folder, key)
  return Beginning(
      state=state._replace(key=key.jax_key()),
      key=key,
      identity=identity,
      lineage=(*lineage, secrets.token_hex(8)),
  )


def beside_params(state: private.State) -> dict[str, Any]:
  """What a checkpoint holds beside the parameters: all but the key."""
  rest = {"opt_state": state.opt_state, "step": state.step}
  if state_lib.published(state) is not state.params:
    rest["iterate"] = state.params
  return rest | {"clip": state.clip}


def _check_steps(spec: spec_lib.TrainingSpec, place: binding.Place) -> None:
  if place.step > spec.steps:
    raise same_run.too_few_steps(
        place.folder,
        place.step,
        spec.steps,
        budget=place.step <= (spec.asked_steps or spec.steps),
    )


def _restored(
    checkpoints: checkpoint_lib.Checkpoints,
    key: keys.RunKey,
    place: binding.Place,
    state: private.State,
) -> tuple[private.State, dict[str, Any]]:
  """The state of the last checkpoint but for its key, and what it says."""
  step = place.step
  params, rest = checkpoints.restore(step, state.params, beside_params(state))
  digests, run = checkpoints.run_of(step)
  binding.check_seal(key, place, digests, run.get("seal"))
  logging.info("resumed from step %d in %s", step, place.folder)
  params = rest.pop("iterate", params)  # Where the model is an average.
  arrays = jax.tree.map(jnp.asarray, {"params": params, **rest})
  return state._replace(**arrays), run


def _say_where(
    spec: spec_lib.TrainingSpec,
    identity: identity_lib.Identity,
    place: binding.Place,
    elsewhere: list[str],
) -> None:
  """Says what the last bits depend on, where that differs."""
  if not elsewhere:
    return
  binding.check_counts(spec.release.mechanism, place, elsewhere)
  logging.warning(
      "the run in %s goes on elsewhere: %s; its samples and its noise are the"
      " same, its sums are equal up to rounding (%s)",
      place.folder,
      ", ".join(elsewhere),
      environment.reproducible_remedy(identity.environment["backend"]),
  )


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
  field = same_run.first_difference(ledger.as_dict(), expected.as_dict())
  if field is not None:
    name, before, now = field
    raise errors.RunError(
        f"the steps of the checkpoint {folder} were taken with"
        f" {name}={before} and the run is resumed with {now}: resume it with"
        " the data and the configuration that it was started with, or choose"
        " another --workdir"
    )

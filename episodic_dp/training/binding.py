"""Whether a run may go on under its key: no step is released twice.

A step that was taken before may be taken again only as it was, bit for bit, or
under noise of its own that the ledger counts. So a run goes on with what
determined its steps; where an optimiser or the noise's form changes, which a
guarantee allows for steps that are still to come, these draw from a key of
their own.

"Bit for bit" has one exception: how the sum of a step's clipped gradients is
laid out, over devices, processes, microbatches and programs. It is no part of
what a run is compared by, for three reasons.

1. Nothing random depends on it. Which tasks are drawn, and the noise, follow
   from the key and the step's number, outside of the part that is shared out; a
   task's own draws follow from the number of its slot in the whole step.
2. What is added up does not depend on it: every task's gradient is computed and
   clipped by itself, before anything is added.
3. So two releases of a step differ by the rounding of that sum and of the
   gradients in it (about 1e-7 of them), under the same noise. Whoever sees both
   sees that difference without noise; docs/work_directories.md says so, and the
   run says when it happens. A step that a checkpoint holds is never taken
   again.

A count has no rounding: where the clip norm follows a noised count of norms, a
norm within rounding of it could count otherwise the second time, by a whole
unit under the same noise. There, steps are taken again on equal terms only
(`check_counts`).
"""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib

from absl import logging

from episodic_dp import errors
from episodic_dp import plan as plan_lib
from episodic_dp.training import environment
from episodic_dp.training import identity as identity_lib
from episodic_dp.training import keys
from episodic_dp.training import metrics
from episodic_dp.training import mirror

_ANOTHER = "or choose another --workdir"
_SENTENCES = {
    identity_lib.RELEASE: (
        "samples or releases something else (hierarchy, plan or mechanism):"
        f" resume it with the release that it was started with, {_ANOTHER}"
    ),
    identity_lib.DATA: (
        "has other data (images, labels or leaf rows differ): resume it with"
        f" the data that it was started with, {_ANOTHER}"
    ),
    identity_lib.SAMPLER: (
        "has another sampler (as it was traced; a dataset's `rows` is part of"
        f" it): resume it with the code that it was started with, {_ANOTHER}"
    ),
    identity_lib.LEARNER: (
        "has another learner (the gradient of a task, as it was traced):"
        f" resume it with the learner that it was started with, {_ANOTHER}"
    ),
    identity_lib.START: (
        "begins with other parameters (seed, learner.init or optimizer.init):"
        f" resume it with those that it was started with, {_ANOTHER}"
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
  """Where a run stands that is to go on.

  Attributes:
    folder: the work directory.
    step: the steps of its last checkpoint; 0 without one.
    logged: the last step that has left a line.
  """

  folder: pathlib.Path
  step: int
  logged: int

  @property
  def clean(self) -> bool:
    """Whether the checkpoint holds all steps that have left a trace.

    Fewer lines than steps show that traces were removed.
    """
    return self.step > 0 and self.logged == self.step


def place_of(folder: pathlib.Path, step: int) -> Place:
  """Where the run in a work directory stands.

  Args:
    folder: the work directory.
    step: the steps of its last checkpoint; 0 without one.
  """
  lines = metrics.read(folder / metrics.FILE)
  logged = [line["step"] for line in lines]
  if (folder / mirror.UNSAVED).exists():
    logged.append(step + 1)  # Lines were lost with a machine, as it may be.
  return Place(folder=folder, step=step, logged=max(logged, default=0))


def bound(
    key: keys.RunKey,
    identity: identity_lib.Identity,
    place: Place,
    plan: plan_lib.SamplingPlan,
) -> keys.RunKey:
  """The key under which the run goes on; another segment of it, or the same.

  Args:
    key: as it was loaded.
    identity: of the run as it is now.
    place: where it stands.
    plan: how it samples.

  Raises:
    RunError: the run is not the one that the key belongs to.
  """
  last = key.segments[-1]
  different = [
      name
      for name in (*identity_lib.STABLE, *identity_lib.TRACED)
      if last.parts.get(name) != identity.parts[name]
  ]
  if not place.step and not place.logged and (different or last.after):
    what = ", ".join(different) or "settings of later steps"
    raise errors.RunError(
        f"the secret key {keys.path(place.folder)} belongs to another run"
        f" (another: {what}) of which nothing else is left: put its files back,"
        f" {_ANOTHER}"
    )
  _check_history(key, place)
  if not different:
    return key
  comparable = last.conditions == identity.conditions
  _check_same(different, last, identity, place, comparable)
  _check_future(different, last, identity, place, comparable)
  _check_pass(place, plan, different)
  logging.warning(
      "the run in %s goes on from step %d with another %s: its steps to come"
      " draw samples and noise of their own",
      place.folder,
      place.step,
      _told(different),
  )
  return key.changed(
      keys.Segment(
          after=place.step,
          parts=identity.parts,
          conditions=identity.conditions,
      )
  )


def check_seed(key: keys.RunKey, private_seed: int | None) -> None:
  """Refuses a key that was made in another way than the guarantee would say.

  Raises:
    RunError: one sentence.
  """
  if key.seeded and private_seed is None:
    raise errors.RunError(
        "the key of this run was made from a private_seed, which its guarantee"
        " must say: resume with the --config.private_seed that it was started"
        " with, or choose another --workdir"
    )
  if private_seed is None:
    return
  if not key.seeded or key.secret != keys.seeded_secret(private_seed):
    remedy = "without --config.private_seed, as it was started"
    if key.seeded:
      remedy = "with the --config.private_seed that it was started with"
    raise errors.RunError(
        "the key of this run does not follow from this private_seed: resume"
        f" {remedy}, or choose another --workdir"
    )


def check_counts(
    mechanism: plan_lib.Mechanism, place: Place, elsewhere: Sequence[str]
) -> None:
  """Refuses to count norms of a step again where one could count otherwise.

  Args:
    mechanism: of the run.
    place: where it stands.
    elsewhere: what differs of what its last bits depend on.

  Raises:
    RunError: one sentence.
  """
  if mechanism.clipping != "private_quantile" or place.clean or not elsewhere:
    return
  last = max(place.logged, place.step + 1)
  raise errors.RunError(
      f"the run in {place.folder} would go on elsewhere"
      f" ({', '.join(elsewhere)}) and take steps {place.step + 1} to {last}"
      " again, whose noised count of norms could then differ by one under the"
      " same noise: resume it once as it was (on a CPU JAX_NUM_CPU_DEVICES=N"
      " gives N devices), let it stop at a checkpoint, and change it then,"
      f" {_ANOTHER}"
  )


def check_seal(
    key: keys.RunKey,
    place: Place,
    digests: Mapping[str, str],
    seal: str | None,
) -> None:
  """Refuses a checkpoint that was not written under this key's history.

  Args:
    key: that of the run, as it was loaded.
    place: where it stands.
    digests: of what the checkpoint holds.
    seal: as the checkpoint states it.

  Raises:
    RunError: it is of another run, or was changed.
  """
  for count in range(len(key.segments), 0, -1):
    if seal == key.seal(place.step, digests, segments=count):
      return
    if key.segments[count - 1].after != place.step:
      break  # Steps of this segment were taken, and are in the checkpoint.
  raise errors.RunError(
      f"the checkpoint of step {place.step} in {place.folder} was not written"
      " under the secret key of this folder, or was changed since: put back"
      " the checkpoints that belong to the key, or choose another --workdir"
  )


def _check_history(key: keys.RunKey, place: Place) -> None:
  """Steps that were taken otherwise later on cannot be taken anew."""
  last = key.segments[-1]
  if last.after > place.step:
    raise errors.RunError(
        f"the run in {place.folder} went on with other settings after step"
        f" {last.after}, and its checkpoint of that step is gone: put it back,"
        f" {_ANOTHER}"
    )


def _check_same(
    different: list[str],
    last: keys.Segment,
    identity: identity_lib.Identity,
    place: Place,
    comparable: bool,
) -> None:
  """Refuses what must not change at all."""
  for name in different:
    if name == identity_lib.STREAM:
      raise errors.RunError(
          f"the run in {place.folder} would draw other numbers from its key"
          f" here ({_changes(last, identity) or 'another device'}): resume it"
          " with the JAX and the settings that it was started with, such as"
          f" pip install jax=={last.conditions.get('jax')} and"
          " JAX_THREEFRY_PARTITIONABLE="
          f"{int(last.conditions.get('threefry_partitionable') == 'True')},"
          f" {_ANOTHER}"
      )
    fixed = name in identity_lib.STABLE or comparable
    if name in _SENTENCES and fixed:
      raise errors.RunError(f"the run in {place.folder} {_SENTENCES[name]}")


def _check_future(
    different: list[str],
    last: keys.Segment,
    identity: identity_lib.Identity,
    place: Place,
    comparable: bool,
) -> None:
  """Refuses to change steps that have left a trace."""
  if place.clean:
    return
  names = _told(different)
  again = "resume it once as it was started, let it stop at a checkpoint, and"
  again += " change it then"
  if place.logged < place.step:
    again = (
        f"put the lines of {metrics.FILE} after step {place.logged} back, which"
        " would show that they were not, or resume it as it was started"
    )
  if comparable:
    reason = f"has another {names}"
  else:
    reason = (
        f"goes on elsewhere ({_changes(last, identity)}), where its {names}"
        " cannot be compared"
    )
  raise errors.RunError(
      f"the run in {place.folder} {reason}, and steps {place.step + 1} to"
      f" {max(place.logged, place.step + 1)} may have been taken already:"
      f" {again}, {_ANOTHER}"
  )


def _check_pass(
    place: Place, plan: plan_lib.SamplingPlan, different: list[str]
) -> None:
  """The steps of a pass share one draw, so one key."""
  first = plan.stages[0]
  if not isinstance(first, plan_lib.RandomAllocation):
    return
  if place.step % first.steps:
    ends = place.step + first.steps - place.step % first.steps
    raise errors.RunError(
        f"the run in {place.folder} is within a pass of {first.steps} steps and"
        f" has another {_told(different)}: resume it as it was up to"
        f" step {ends}, where the pass ends, {_ANOTHER}"
    )


def _told(different: list[str]) -> str:
  """The names of parts; another number of steps is another learning rate."""
  parts = {identity_lib.OPTIMIZER: "optimizer or learning rate"}
  return " and ".join(parts.get(name, name) for name in different)


def _changes(last: keys.Segment, identity: identity_lib.Identity) -> str:
  found = environment.differences(last.conditions, identity.conditions)
  return ", ".join(found)

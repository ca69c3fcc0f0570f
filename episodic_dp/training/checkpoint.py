"""Checkpoints: parameters, optimiser state, step and ledger; never a key.

Orbax keeps the latest checkpoint and the five that do best on public
validation classes (the ensemble). A checkpoint is written beside its place and
renamed, so that a killed process leaves whole ones only; a digest of the arrays
and of the ledger is stored with it, so that a damaged one is noticed, not
trained on.

`params` may be published. `rest` too, with one exception: the clip norms and
the window of a run with clipping="percentile_window" (`rest.clip`), raw
gradient norms of single tasks.
"""

from collections.abc import Callable, Mapping
import hashlib
import json
import os
import pathlib
from typing import Any

import jax
import numpy as np
from orbax import checkpoint as ocp

from episodic_dp import errors
from episodic_dp.output import files

BEST = 5
FOLDER = "checkpoints"
_QUALITY = "validation_accuracy"  # Its name since the first checkpoints.
_LEDGER, _RUN, _DIGEST = "ledger", "run", "digest"
_ORBAX_METADATA = "_CHECKPOINT_METADATA"

Arrays = Any  # a pytree of arrays


class Checkpoints:
  """The checkpoints of one work directory.

  Attributes:
    folder: `WORKDIR/checkpoints`.
  """

  def __init__(self, workdir: str | os.PathLike, *, read_only: bool = False):
    self.folder = pathlib.Path(workdir).absolute() / FOLDER
    policies = ocp.checkpoint_managers
    keep = policies.AnyPreservationPolicy([
        policies.LatestN(n=1),
        policies.BestN(
            get_metric_fn=lambda metrics: metrics[_QUALITY],
            n=BEST,
            keep_checkpoints_without_metrics=False,
        ),
    ])
    # Of several processes one alone calls this.
    alone: dict[str, Any] = {}
    if jax.process_count() > 1:
      me = jax.process_index()
      alone["multiprocessing_options"] = ocp.options.MultiprocessingOptions(
          primary_host=me, active_processes={me}
      )
    if not read_only:
      self.folder.mkdir(parents=True, exist_ok=True)
      for path in self.folder.glob(f"*/{_ORBAX_METADATA}"):
        _remove_times(path)
    try:
      self._manager = ocp.CheckpointManager(
          self.folder,
          options=ocp.CheckpointManagerOptions(
              preservation_policy=None if read_only else keep,
              # Metrics are stored only where Orbax is told how to rank them.
              best_fn=lambda metrics: metrics[_QUALITY],
              enable_async_checkpointing=False,
              cleanup_tmp_directories=not read_only,
              create=False,
              read_only=read_only,
              **alone,
          ),
      )
    except ValueError as e:  # It reads the metrics of every checkpoint.
      raise errors.RunError(
          f"the checkpoint {self._damaged()} cannot be read ({_short(e)}): move"
          " this folder away and run the same command again; nothing else is"
          " lost"
      ) from e

  def _damaged(self) -> pathlib.Path:
    """The first checkpoint whose metrics are no JSON; all, where none is."""
    for path in sorted(self.folder.glob("*/metrics/metrics")):
      try:
        json.loads(path.read_text(encoding="utf-8"))
      except (ValueError, RecursionError):
        return path.parents[1]
    return self.folder

  def steps(self) -> tuple[int, ...]:
    """The steps that have a checkpoint, in order."""
    return tuple(sorted(self._manager.all_steps()))

  def latest(self) -> int | None:
    """The last of `steps()`, or None."""
    return max(self.steps(), default=None)

  def best(self) -> tuple[tuple[int, float], ...]:
    """Up to five (step, quality on validation tasks), the best first.

    Of equal qualities the later step comes first.
    """
    found = []
    for step in self.steps():
      metrics = self._manager.metrics(step)
      if metrics and _QUALITY in metrics:
        found.append((step, float(metrics[_QUALITY])))
    found.sort(key=lambda pair: (pair[1], pair[0]), reverse=True)
    return tuple(found[:BEST])

  def save(
      self,
      step: int,
      params: Arrays,
      rest: Arrays,
      *,
      ledger: Mapping[str, Any] | None = None,
      seal: Callable[[int, Mapping[str, str]], Mapping[str, Any]] | None = None,
      quality: float | None = None,
  ) -> None:
    """Writes a checkpoint; does nothing where the step has one.

    Args:
      step: the number of steps done.
      params: a pytree of arrays: the model, which consumers restore alone.
      rest: what else resuming needs; never a key.
      ledger: what the steps cost (`accounting.Ledger.as_dict`), or None.
      seal: from the step and the digests of all that is saved to what is said
        of the run that saved it (`run_of` reads it), or None.
      quality: validation accuracy, or minus the squared error: the best are
        kept. None where it was not measured.

    Raises:
      RunError: the folder cannot be written.
    """
    if step in self._manager.all_steps():
      return
    items = {"params": to_host(params), "rest": to_host(rest)}
    digests = {name: digest(item) for name, item in items.items()}
    said = {}
    if ledger is not None:
      said[_LEDGER] = ocp.args.JsonSave(dict(ledger))
      digests[_LEDGER] = json_digest(ledger)
    if seal is not None:
      run = dict(seal(step, digests))
      said[_RUN] = ocp.args.JsonSave(run)
      digests[_RUN] = json_digest(run)
    try:
      self._manager.save(
          step,
          args=ocp.args.Composite(
              **{k: ocp.args.StandardSave(v) for k, v in items.items()},
              **said,
              **{_DIGEST: ocp.args.JsonSave(digests)},
          ),
          metrics=None if quality is None else {_QUALITY: float(quality)},
      )
      self._manager.wait_until_finished()
      _remove_times(self.folder / str(step) / _ORBAX_METADATA)
    except (OSError, ValueError) as e:
      raise errors.RunError(
          f"the checkpoint of step {step} cannot be written to {self.folder}"
          f" ({_short(e)}): make room or make the folder writable and run the"
          " same command again; earlier checkpoints are whole"
      ) from e

  def restore(
      self, step: int, params: Arrays, rest: Arrays = None
  ) -> tuple[Arrays, Arrays]:
    """The arrays of a step, as NumPy arrays.

    Args:
      step: one of `steps()`.
      params: the model's parameters, for their tree, shapes and dtypes.
      rest: likewise; None restores the parameters alone.

    Returns:
      (params, rest), rest None where it was not asked for.

    Raises:
      RunError: the checkpoint is damaged or of another model.
    """
    like = {"params": params, "rest": rest}
    like = {k: to_host(v) for k, v in like.items() if v is not None}
    try:
      restored = self._manager.restore(
          step,
          args=ocp.args.Composite(
              **{k: ocp.args.StandardRestore(v) for k, v in like.items()},
              **{_DIGEST: ocp.args.JsonRestore()},
          ),
      )
      arrays = {k: jax.tree.map(np.asarray, restored[k]) for k in like}
      for name, value in arrays.items():
        if digest(value) != restored[_DIGEST][name]:
          raise ValueError("its contents differ from what was saved")
        _check_like(value, like[name])
    except Exception as e:  # Orbax raises many types for damaged files.
      raise self.unreadable(step, _short(e)) from e
    return arrays["params"], arrays.get("rest")

  def ledger(self, step: int) -> dict[str, Any] | None:
    """The ledger of a step, or None where it was saved without one.

    Raises:
      RunError: it is damaged, or no longer there.
    """
    return self._plain(step, _LEDGER)[1]

  def run_of(self, step: int) -> tuple[dict[str, str], dict[str, Any]]:
    """(digests of what was saved, what its run said of itself); see `save`.

    Raises:
      RunError: it is damaged, or was saved by an earlier version, which said
        nothing.
    """
    digests, run = self._plain(step, _RUN)
    if run is None:
      raise errors.RunError(
          f"the checkpoint {self.folder / str(step)} does not say under which"
          " key it was written, which earlier versions did not: finish the run"
          " with the version that started it, or start a new one in another"
          " --workdir"
      )
    return {k: v for k, v in digests.items() if k != _RUN}, run

  def _plain(self, step: int, name: str) -> tuple[dict[str, str], Any]:
    """(the digests of a step, plain data of it or None)."""
    read = ocp.args.JsonRestore()
    try:
      digests = self._manager.restore(
          step, args=ocp.args.Composite(**{_DIGEST: read})
      )[_DIGEST]
      if name not in digests:
        return digests, None
      found = self._manager.restore(
          step, args=ocp.args.Composite(**{name: read})
      )[name]
      if json_digest(found) != digests[name]:
        raise ValueError(f"its {name} differs from what was saved")
    except Exception as e:  # As for `restore`.
      raise self.unreadable(step, _short(e)) from e
    return digests, found

  def unreadable(self, step: int, reason: str) -> errors.RunError:
    """The sentence for a checkpoint that cannot be gone on from."""
    earlier = [s for s in self.steps() if s < step]
    after = (
        f"the run then goes on from step {earlier[-1]} and repeats the same"
        " steps bit for bit"
        if earlier
        else "the run then starts again with the same key"
    )
    return errors.RunError(
        f"the checkpoint {self.folder / str(step)} cannot be read ({reason}):"
        " move this folder away and run the same command again;"
        f" {after}"
    )

  def close(self) -> None:
    """Waits for what is being written."""
    self._manager.close()


def _remove_times(path: pathlib.Path) -> None:
  """Removes when a checkpoint was written, which tells what its steps drew."""
  try:
    values = json.loads(path.read_text(encoding="utf-8"))
    times = [name for name in values if name.endswith("_timestamp_nsecs")]
  except (OSError, TypeError, ValueError, RecursionError):
    return  # Damaged, which whoever needs it will say.
  if any(values[name] for name in times):
    values |= dict.fromkeys(times, 0)
    files.write_text(path, json.dumps(values))


def to_host(arrays: Arrays) -> Arrays:
  """Copies to NumPy: a view would change when the buffer is donated."""
  return jax.tree.map(lambda a: np.array(a, copy=True), arrays)


def _check_like(arrays: Arrays, like: Arrays) -> None:
  for new, old in zip(jax.tree.leaves(arrays), jax.tree.leaves(like)):
    if new.shape != old.shape or new.dtype != old.dtype:
      raise ValueError(
          f"it holds {new.dtype}{list(new.shape)} where the model has"
          f" {old.dtype}{list(old.shape)}"
      )


def digest(arrays: Arrays) -> str:
  """SHA-256 over the bytes, dtypes and shapes of the leaves in order."""
  total = hashlib.sha256()
  for leaf in jax.tree.leaves(arrays):
    leaf = np.ascontiguousarray(leaf)
    total.update(f"{leaf.dtype.str}{leaf.shape}".encode())
    total.update(leaf.tobytes())
  return total.hexdigest()


def json_digest(value: Any) -> str:
  """SHA-256 of plain data, whatever the order of its fields."""
  text = json.dumps(value, sort_keys=True, allow_nan=False)
  return hashlib.sha256(text.encode()).hexdigest()


def _short(error: BaseException) -> str:
  """The first line of an error's text, shortened."""
  text = str(error).strip().splitlines() or [type(error).__name__]
  return text[0] if len(text[0]) <= 120 else text[0][:117] + "..."

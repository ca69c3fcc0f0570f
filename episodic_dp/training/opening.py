"""Opens a run's work directory before its data are read.

A folder that cannot be used is told before anything is waited for; and where
several processes train, what keeps one of them from beginning ends them all.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import os

from episodic_dp.training import processes
from episodic_dp.training import workdir as workdir_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
  """What `training.train` takes in place of a work directory's name.

  Attributes:
    place: the work directory; None in all processes but the first.
    broadcast: by which the first tells the others how to begin.
  """

  place: workdir_lib.WorkDirectory | None
  broadcast: processes.Broadcast


@contextlib.contextmanager
def opened(
    workdir: str | os.PathLike,
    *,
    resume: str = "auto",
    key_file: str | os.PathLike | None = None,
) -> Iterator[Opened]:
  """Opens a work directory for `training.train`; closes it in the end.

  Of several processes all call it, and the first alone uses the folder. JAX
  begins here where there are several (`jax.distributed.initialize`).

  Args:
    workdir: a folder, or an address on an object store.
    resume: "auto", "must" or "never"; see `workdir.opened`.
    key_file: where the secret key of a run on an object store lies; likewise.

  Raises:
    RunError: the folder cannot be used.
  """
  broadcast = processes.Broadcast()
  try:
    if not processes.first():
      yield Opened(place=None, broadcast=broadcast)
      return
    with workdir_lib.opened(
        workdir, resume=resume, key_file=key_file
    ) as place:
      yield Opened(place=place, broadcast=broadcast)
  except Exception as e:
    broadcast.abort(e)
    raise

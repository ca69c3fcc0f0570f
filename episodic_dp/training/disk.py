"""What a run says when its work directory stops taking files."""

from collections.abc import Iterator
import contextlib
import os
import pathlib

from episodic_dp import errors


class Disk:
  """Tells a disk that fails from an error in the program.

  Args:
    folder: the work directory.
    opened: a file descriptor of it.
  """

  def __init__(self, folder: pathlib.Path, opened: int):
    self._folder = folder
    self._opened = opened
    self._kept: tuple[pathlib.Path, ...] = ()

  def keep(self, *files_of_run: pathlib.Path) -> None:
    """Says what is there from now on, and what the run cannot do without."""
    self._kept = files_of_run

  def check(self) -> None:
    """Whether the folder is still the one that was opened, and holds the run.

    What is written to a file of a folder that was deleted goes nowhere, without
    an error.

    Raises:
      RunError: it is gone, or another one has its name; or it was emptied.
    """
    try:
      same = os.path.samestat(os.stat(self._folder), os.fstat(self._opened))
    except OSError as e:
      raise self._gone() from e
    if not same:
      raise self._gone()
    for path in self._kept:
      if not path.exists():
        raise errors.RunError(
            f"{path} was deleted while the run went on, which cannot be resumed"
            " without it: put it back, or begin a run with another --workdir"
        )

  def _gone(self) -> errors.RunError:
    return errors.RunError(
        f"the work directory {self._folder} is gone: mount or restore it and"
        " run the same command again; it goes on from the last checkpoint in it"
    )


@contextlib.contextmanager
def watched(folder: pathlib.Path) -> Iterator[Disk]:
  """Turns errors of the disk into one sentence.

  Args:
    folder: the work directory, which is there.

  Raises:
    RunError: the folder can no longer be written, or is gone.
  """
  # Open, so that no other folder gets its number.
  opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
  disk = Disk(folder, opened)
  try:
    yield disk
  except OSError as e:
    if e.errno is None:
      raise
    disk.check()
    raise errors.RunError(
        f"the work directory {folder} can no longer be written"
        f" ({os.strerror(e.errno)}): run the same command again, which resumes"
        " from the last checkpoint"
    ) from e
  except errors.RunError:
    # Of a checkpoint, as it may be: where the folder is gone, say that.
    disk.check()
    raise
  finally:
    os.close(opened)

"""What is launched: runs of `episodic-dp train`, and how many share each."""

import dataclasses

from episodic_dp.config import RunConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """One run of a job.

  Attributes:
    name: of its folder in a sweep; "" for the only run of a job.
    arguments: of `episodic-dp train`, without those that tell a process which
      one it is.
    workdir: the value of its --workdir.
    config: of its arguments; None is compared with no run before it.
  """

  name: str
  arguments: tuple[str, ...]
  workdir: str
  config: RunConfig | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """Runs that are launched together.

  Attributes:
    name: in the list of a cluster's jobs.
    runs: one, or those of a sweep.
    workdir: of the run, or the folder of a sweep's work directories.
    processes: how many train one run together.
    resume: the value of the runs' --resume.
  """

  name: str
  runs: tuple[Run, ...]
  workdir: str
  processes: int
  resume: str = "auto"

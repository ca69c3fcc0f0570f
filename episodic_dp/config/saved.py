"""The config of a run, read again from its work directory."""

import os

from episodic_dp.config.run_config import RunConfig
from episodic_dp.training import workdir as workdir_lib


def read(
    workdir: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
) -> RunConfig:
  """Return the config of the run in a work directory, checked and complete.

  Args:
    workdir: folder of a run.
    data_dir: of own data, for a config without a hierarchy.

  Raises:
    RunError: there is no run, or its config.json is damaged.
    PlanError, UnsoundPlanError: its config.json was changed.
  """
  config = RunConfig.parse(
      workdir_lib.read_config(workdir), data_dir=data_dir
  )
  config.check_complete()
  return config

"""The config of a run, read again from its work directory."""

from collections.abc import Iterator
import contextlib
import math
import os
import pathlib
from typing import Any

from episodic_dp import errors
from episodic_dp.config.run_config import RunConfig
from episodic_dp.training import workdir as workdir_lib


def read(
    workdir: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
) -> RunConfig:
  """The config of the run in a work directory, parsed and complete.

  Args:
    workdir: folder of a run.
    data_dir: of own data, for a config without a hierarchy.

  Raises:
    RunError: there is no run, or its config.json is damaged.
    PlanError, UnsoundPlanError: its config.json was changed; one sentence.
  """
  values = _restored(workdir_lib.read_config(workdir))
  with saved_config_errors(workdir):
    config = RunConfig.parse(_with_new_names(values), data_dir=data_dir)
    config.check_complete()
  return config


@contextlib.contextmanager
def saved_config_errors(workdir: str | os.PathLike[str]) -> Iterator[None]:
  """Turns malformed fields, found where a config is built of, into RunError.

  Raises:
    RunError: a field is missing, or of a kind that no config has.
  """
  try:
    yield
  except (AttributeError, KeyError, TypeError) as e:
    path = pathlib.Path(workdir) / workdir_lib.CONFIG
    raise errors.RunError(
        f"{path} is not as a run writes it ({str(e)[:100]}): restore the file,"
        " or use the version that wrote it"
    ) from e


def _restored(value: Any) -> Any:
  """The value with the number for "inf", which JSON has no number for."""
  if isinstance(value, dict):
    return {k: _restored(v) for k, v in value.items()}
  return math.inf if value == "inf" else value


def _with_new_names(values: dict[str, Any]) -> dict[str, Any]:
  """The config of a run that was begun before fields had other names."""
  compute = values.get("compute")
  if isinstance(compute, dict) and "tasks_per_chunk" in compute:
    compute = dict(compute)
    size = compute.pop("tasks_per_chunk")
    values = values | {"compute": {"microbatch_size": size} | compute}
  return values

"""The hierarchy of someone's own data, which is read from the data.

A config says nothing of the sizes of a folder or an .npz that it does not know.
They are listed, without decoding an image and without JAX, and written into
`config.hierarchy`: from there on the config is like any other, the accountant
reads it, config.json keeps it, and a run is not resumed on data of other sizes.
"""

from collections.abc import Mapping
import dataclasses
import os
from typing import Any

import numpy as np

from episodic_dp import data
from episodic_dp import errors
from episodic_dp import plan as plan_lib
from episodic_dp.config import fitting
from episodic_dp.config import release
from episodic_dp.data import dataset
from episodic_dp.data.own_data import load as own_data_lib
from episodic_dp.data.own_data import rows
from episodic_dp.output import phases

_OF_ROWS = tuple(f.name for f in dataclasses.fields(rows.Options))
_SURVEYED = ("levels", "shares", "by", "crossing", "seed")


def survey(
    config: Mapping[str, Any], data_dir: str | os.PathLike[str] | None
) -> own_data_lib.Survey | None:
  """Lists own data, where that is what the config is of.

  Args:
    config: nested plain values.
    data_dir: the folder or the .npz; or of another data set's files.

  Returns:
    None unless the data are "own_data" and the config has no hierarchy yet.

  Raises:
    FileNotFoundError, ValueError: an option is out of range, the data cannot
      be listed, or the config reads no data_dir; one sentence.
  """
  named = config.get("data") or {}
  data.check_data_dir(named.get("name") or "", data_dir)
  if named.get("name") != "own_data":
    return None
  options = named.get("options") or {}
  rows.options(**{k: options.get(k) for k in _OF_ROWS})
  if config.get("hierarchy") is not None:
    return None
  with phases.phase("listing the data"):
    return own_data_lib.survey(
        data_dir,
        **{k: options[k] for k in _SURVEYED if options.get(k) is not None},
    )


def hierarchy_section(
    found: own_data_lib.Survey, config: Mapping[str, Any]
) -> dict[str, Any]:
  """`config.hierarchy` of the training part: its levels and sizes.

  Raises:
    PlanError: the data are too small for the config's plan; names the unit.
  """
  training = found.hierarchies["train"]
  plan = release.plan_of(config)
  if plan.episode is None:  # Single images are learned, by their classes.
    training = dataset.flattened(training)
  else:
    _check_names(training, plan)
  try:  # Here the units have names; those of a config have numbers.
    plan_lib.validate(training, plan)
  except plan_lib.PlanError as e:
    raise fitting.refused(found, config, "train", e) from e
  section = {"levels": training.levels} | _sizes(training)
  if training.most_copies is not None:
    section["copies"] = True
    section["most_copies"] = dict(
        zip(training.levels[1:], training.most_copies[1:])
    )
  if training.units_from_records:
    section["units_from_records"] = True
  return section


def _check_names(
    training: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> None:
  """PlanError where a name occurs in several classes and may be one unit."""
  if plan_lib.class_level(training, plan) or training.depth < 3:
    return
  assert training.names is not None and training.names[1] is not None
  names, counts = np.unique(training.names[1], return_counts=True)
  if counts.max() > 1 and not training.copies:
    of, level = training.levels[:2]
    raise plan_lib.PlanError(
        f"{level} {errors.shown(str(names[counts.argmax()]))} is in"
        f" {counts.max()} units of level '{of}': where it is one {level}, say"
        f" --config.data.options.crossing={level}, or else give every {level} a"
        " name of its own"
    )


def _sizes(hierarchy: plan_lib.Hierarchy) -> dict[str, Any]:
  """`sizes` where all families of a level are equal, else `nested`."""
  families = [hierarchy.child_counts(k) for k in range(hierarchy.depth)]
  if all((counts == counts[0]).all() for counts in families):
    return {"sizes": tuple(int(counts[0]) for counts in families)}
  nested: Any = tuple(families[-1].tolist())
  for counts in reversed(families[1:-1]):
    ends = counts.cumsum().tolist()
    nested = tuple(
        nested[end - count : end] for count, end in zip(counts.tolist(), ends)
    )
  return {"nested": nested}

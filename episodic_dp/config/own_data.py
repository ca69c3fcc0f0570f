"""Configs of someone's own data: their hierarchy is read from the data.

A config says nothing of the sizes of a folder or an .npz that it does not know.
They are listed, without decoding an image and without JAX, and written into
`config.hierarchy`: from there on the config is like any other, the accountant
reads it, config.json keeps it, and a run is not resumed on data of other sizes.
"""

from typing import Any

import ml_collections

from episodic_dp import plan as plan_lib
from episodic_dp.config import describe
from episodic_dp.data import dataset
from episodic_dp.data.own_data import load as own_data

_SURVEYED = ("levels", "shares", "seed")


def with_hierarchy(
    config: ml_collections.ConfigDict,
    data_dir: str | None,
    *,
    evaluated: bool = False,
) -> ml_collections.ConfigDict:
  """The config with `hierarchy` from the training part of its data.

  Args:
    config: any; it comes back as it is unless its data are "own_data" and it
      has no hierarchy yet.
    data_dir: the folder or the .npz.
    evaluated: also check that validation and test hold the tasks that
      `config.evaluation` asks for (imports JAX).

  Raises:
    PlanError: the data are too small for the plan; names the unit.
    FileNotFoundError, ValueError: the data cannot be listed; one sentence.
  """
  named = config.get("data")
  if named is None or named.get("name") != "own_data":
    return config
  if config.get("hierarchy") is not None:
    return config
  options = named.get("options") or {}
  found = own_data.survey(
      data_dir,
      **{k: options[k] for k in _SURVEYED if options.get(k) is not None},
  )
  training = found.hierarchies["train"]
  stages = describe.plan_of(config)
  if stages.episode is None:  # Single images are learned, by their classes.
    training = dataset.flattened(training)
  # Here the units have names; those of a config have numbers.
  plan_lib.validate(training, stages)
  if evaluated:
    _check_evaluation(config, found)
  result = config.copy_and_resolve_references()
  with result.unlocked():
    result.hierarchy = ml_collections.ConfigDict(
        {"levels": training.levels} | _sizes(training)
    )
  return result


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


def _check_evaluation(
    config: ml_collections.ConfigDict, found: own_data.Survey
) -> None:
  from episodic_dp.training import evaluation  # Imports JAX.

  for part in ("validation", "test"):
    try:
      evaluation.task_plan(
          found.hierarchies[part],
          way=describe.way_of(config),
          shot=config.evaluation.shot,
          query=config.evaluation.query,
      )
    except plan_lib.PlanError as e:
      raise plan_lib.PlanError(
          f"the {part} part of {found.listing.source} is too small for its"
          f" tasks, so give it more through data.options.shares, or lower"
          f" evaluation.shot, evaluation.query or way: {e}"
      ) from e

"""The release that a config describes, without data or JAX.

What is trained and what is accounted are both read through here.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

from episodic_dp import plan as plan_lib
from episodic_dp.config import sections


def plan_from_config(config: Mapping[str, Any]) -> plan_lib.Release:
  """What a config samples and releases.

  Args:
    config: nested plain values, with `plan.stages` (strings such as
      'Poisson(0.004)'), `mechanism` and, but for plans that are only accounted,
      `episode`; its hierarchy is `hierarchy` (see `hierarchy_of`), or that of
      the synthetic participants named in `data.options`.

  Raises:
    PlanError: a field is missing or wrong; one sentence.
    UnsoundPlanError: no proof covers what it describes.
  """
  return plan_lib.Release(
      hierarchy_of(config), plan_of(config), mechanism_of(config)
  )


def hierarchy_of(config: Mapping[str, Any]) -> plan_lib.Hierarchy:
  """The hierarchy of the training data.

  `config.hierarchy` has `levels` and either `sizes`, one number per level for a
  regular tree, or `nested`, nested lists of the sizes of the ultimate units for
  a ragged one; `copies`, and `most_copies`, which says by level how many
  primary units hold one same record; `units_from_records` says that nothing
  declares the units (as in `Hierarchy`). Without it, `config.data.options` of a
  data set with synthetic participants says how many there are, of how many
  classes (`way`) and images (`per_class`), and `config.data.most_copies` how
  many of them hold one same class and one same image.
  """
  if config.get("hierarchy") is not None:
    fields = sections.fields_of(
        config,
        "hierarchy",
        ("levels",),
        ("sizes", "nested", "copies", "most_copies", "units_from_records"),
    )
    levels = fields["levels"]
    sizes, nested = fields.get("sizes"), fields.get("nested")
    if (sizes is None) == (nested is None):
      raise plan_lib.PlanError(
          "config.hierarchy needs either sizes (one number per level) or nested"
          " (lists of sizes)"
      )
    if isinstance(levels, str) or not isinstance(levels, Sequence):
      raise plan_lib.PlanError(
          f"config.hierarchy.levels is {levels!r}: give a tuple of names"
      )
    from_records = bool(fields.get("units_from_records", False))
    most = _counts("hierarchy", fields.get("most_copies"))
    if nested is not None:
      tree = plan_lib.Hierarchy.from_sizes(
          _lists(nested),
          levels=levels,
          copies=bool(fields.get("copies", False)),
          most_copies=most,
      )
    else:
      assert sizes is not None
      tree = plan_lib.Hierarchy.regular(
          (sizes,) if isinstance(sizes, int) else tuple(sizes),
          levels=levels,
          copies=bool(fields.get("copies", False)),
          most_copies=most,
      )
    return dataclasses.replace(tree, units_from_records=from_records)
  data = config.get("data") or {}
  options = data.get("options") or {}
  wanted = ("participants", "way", "per_class")
  if all(options.get(name) is not None for name in wanted):
    return plan_lib.Hierarchy.regular(
        tuple(options[name] for name in wanted),
        levels=("participant", "class", "image"),
        copies=True,
        most_copies=_counts("data", data.get("most_copies")),
    )
  raise plan_lib.PlanError(
      "the config says nothing of its hierarchy: set config.hierarchy with"
      " levels and sizes, such as levels=('class', 'drawing') and"
      " sizes=(1150, 20)"
  )


def _counts(section: str, value: Any) -> dict[str, int] | None:
  """Level -> count, of the levels that have one; None for none at all."""
  if value is None:
    return None
  if not isinstance(value, Mapping):
    raise plan_lib.PlanError(
        f"config.{section}.most_copies is {value!r}: give a count by level,"
        " such as {'class': 1881, 'image': 228}"
    )
  return {k: v for k, v in value.items() if v is not None} or None


def way_of(config: Mapping[str, Any]) -> int:
  """The classes of a validation or test task.

  `config.episode.way`, or `config.evaluation.way` where there is no episode.

  Raises:
    PlanError: neither is there, or they differ.
  """
  trained = (config.get("episode") or {}).get("way")
  tested = (config.get("evaluation") or {}).get("way")
  way = trained if tested is None else tested
  if way is None:
    raise plan_lib.PlanError(
        "config.episode is missing and config.evaluation.way too: the classes"
        " of a test task are not known, set evaluation.way"
    )
  if trained not in (way, None):
    raise plan_lib.PlanError(
        f"config.evaluation.way={tested} and config.episode.way={trained}: test"
        " tasks have the classes of training tasks, leave evaluation.way out"
    )
  return way


def plan_of(config: Mapping[str, Any]) -> plan_lib.SamplingPlan:
  """`config.plan.stages` and `config.episode`."""
  fields = sections.fields_of(
      config, "plan", ("stages",), ("allow_short_units",)
  )
  stages = fields["stages"]
  if isinstance(stages, str) or not isinstance(stages, Sequence):
    raise plan_lib.PlanError(
        f"config.plan.stages is {stages!r}: give a tuple of strings such as"
        " ('Poisson(0.004)', 'FixedSize(5)', 'FixedSize(2)')"
    )
  episode = None
  if config.get("episode") is not None:
    values = sections.fields_of(
        config,
        "episode",
        ("way", "shot", "query"),
        ("form", "tasks", "classes"),
    )
    episode = plan_lib.Episode(
        **{k: v for k, v in values.items() if v is not None}
    )
  return plan_lib.SamplingPlan(
      tuple(plan_lib.parse_stage(stage) for stage in stages),
      episode=episode,
      allow_short_units=bool(fields.get("allow_short_units", False)),
  )


def mechanism_of(config: Mapping[str, Any]) -> plan_lib.Mechanism:
  """`config.mechanism`."""
  fields = sections.fields_of(
      config,
      "mechanism",
      ("clip_unit", "noise_multiplier"),
      (
          "clip_norm",
          "clip_by",
          "clipping",
          "clip_quantile",
          "clip_rate",
          "count_noise",
          "clip_percentile",
          "clip_window",
          "order",
          "inner_steps",
          "inner_clip_norm",
          "inner_noise_multiplier",
      ),
  )
  return plan_lib.Mechanism(
      **{k: v for k, v in fields.items() if v is not None}
  )


def _lists(value: Any) -> Any:
  """Tuples as lists, all the way down."""
  if isinstance(value, Sequence) and not isinstance(value, str):
    return [_lists(v) for v in value]
  return value

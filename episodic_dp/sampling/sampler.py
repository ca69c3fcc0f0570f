"""Algorithm 1 of the paper, for any number of stages, inside `jit`.

Source: Tombs, Kotevska and Young, "Privacy Amplification for Episodic Training
Methods" (2022), Algorithm 1, with `Poisson`, `All` and passes over the primary
units (`RandomAllocation`) beside fixed sizes.
"""

import dataclasses
import functools
from typing import NamedTuple
import weakref

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.plan import sampler_error
from episodic_dp.plan import stages as stages_lib
from episodic_dp.plan import validation
from episodic_dp.sampling import draws

# Folded into the key of a pass in place of a step's number, which is smaller.
_PASSES = np.uint32(1 << 31)

# Built with NumPy, then moved to the device.
_Array = np.ndarray | jax.Array


@dataclasses.dataclass(frozen=True)
class _StaticPlan:
  """Constants of a draw inside `jit`; equal plans share a trace.

  Attributes:
    stages: the stages of the plan.
    slots: static number of children drawn per unit, stage by stage.
    sizes: the sizes of a regular hierarchy, or None.
    searches: per stage, the steps of the search for a Poisson count (0 else).
    tasks: leading axis of form "independent", or None.
    allocated: the number of primary units where a pass goes over them, else 0.
  """

  stages: tuple[stages_lib.Stage, ...]
  slots: tuple[int, ...]
  sizes: tuple[int, ...] | None
  searches: tuple[int, ...]
  tasks: int | None
  allocated: int


class _Level(NamedTuple):
  """Arrays of one stage; None where there is nothing to look up.

  Attributes:
    offsets: int32[parents + 1] of a ragged level.
    tables: the tables of a Poisson stage.
    which: int32[parents], the table of each parent (ragged Poisson).
  """

  offsets: _Array | None
  tables: draws.CountTables | None
  which: _Array | None


class _Arrays(NamedTuple):
  """Arrays that a draw looks up.

  Attributes:
    levels: of each stage.
    leaf_rows: int32[leaves], data rows, where the hierarchy has them.
  """

  levels: tuple[_Level, ...]
  leaf_rows: _Array | None


# Per hierarchy (by identity) and plan: validated once, uploaded once. Values
# must not refer to the hierarchy, or it would never be freed.
_PREPARED: weakref.WeakKeyDictionary[
    hierarchy_lib.Hierarchy,
    dict[stages_lib.SamplingPlan, tuple[_StaticPlan, _Arrays]],
] = weakref.WeakKeyDictionary()


def _prepare(
    hierarchy: hierarchy_lib.Hierarchy, plan: stages_lib.SamplingPlan
) -> tuple[_StaticPlan, _Arrays]:
  """Validate the plan and build its tables, once for each hierarchy."""
  plans = _PREPARED.setdefault(hierarchy, {})
  if plan not in plans:
    validation.validate(hierarchy, plan)
    levels, searches = zip(
        *(_level(hierarchy, k, stage) for k, stage in enumerate(plan.stages))
    )
    arrays = _Arrays(levels, hierarchy.leaf_rows)
    # Concrete arrays even when the caller is being traced: they are kept.
    with jax.ensure_compile_time_eval():
      arrays = jax.tree.map(jnp.array, arrays)
    static = _StaticPlan(
        stages=plan.stages,
        slots=sampler_error.capacities(hierarchy, plan),
        sizes=hierarchy.sizes,
        searches=searches,
        tasks=plan.episode.tasks if plan.episode is not None else None,
        allocated=(
            hierarchy.num_units(0)
            if isinstance(plan.stages[0], stages_lib.RandomAllocation)
            else 0
        ),
    )
    plans[plan] = (static, arrays)
  return plans[plan]


def _level(
    hierarchy: hierarchy_lib.Hierarchy, k: int, stage: stages_lib.Stage
) -> tuple[_Level, int]:
  """The arrays (NumPy) of stage k and its search steps."""
  ragged = hierarchy.offsets
  offsets = tables = which = None
  steps = 0
  if ragged is not None:
    offsets = ragged[k].astype(np.int32)
  if isinstance(stage, stages_lib.Poisson):
    distinct, inverse = np.unique(
        hierarchy.child_counts(k), return_inverse=True
    )
    tables, steps = draws.count_tables(distinct.tolist(), stage.p)
    which = inverse.astype(np.int32) if ragged is not None else None
  return _Level(offsets, tables, which), steps


@functools.partial(jax.jit, static_argnames="static")
def _draw(
    key: jax.Array, step: jax.Array, arrays: _Arrays, static: _StaticPlan
) -> tuple[jax.Array, jax.Array]:
  """The draw itself; see `sample`."""
  step_key = jax.random.fold_in(key, step)
  lead = () if static.tasks is None else (static.tasks,)
  units = jnp.zeros(lead, jnp.int32)
  mask = jnp.ones(lead, bool)
  for k, (stage, level) in enumerate(zip(static.stages, arrays.levels)):
    slots = static.slots[k]
    # One number per slot and, last, one for the count.
    drawn = draws.random_bits(
        jax.random.fold_in(step_key, k), (*units.shape, slots + 1)
    )
    bits, count_bits = drawn[..., :slots, :], drawn[..., slots, :]
    if level.offsets is not None:
      first = level.offsets[units]
      n_children = level.offsets[units + 1] - first
    else:
      assert static.sizes is not None
      size = static.sizes[k]
      first = units * size  # At most the number of units below: no overflow.
      n_children = jnp.full(units.shape, size, jnp.int32)
    take = n_children
    assigned = None
    if isinstance(stage, stages_lib.RandomAllocation):
      assigned, n_children = draws.draw_assigned(
          jax.random.fold_in(key, _PASSES),
          step,
          units=static.allocated,
          steps=stage.steps,
          slots=slots,
      )
      take = n_children
    if isinstance(stage, stages_lib.FixedSize):
      take = jnp.minimum(take, stage.n)
    elif level.tables is not None:  # Poisson
      which = 0 if level.which is None else level.which[units]
      take = draws.draw_counts(
          count_bits, level.tables, which, static.searches[k]
      )
    children = draws.draw_ordered(bits, n_children, slots)
    if assigned is not None:
      children = assigned[children]
    position = jnp.arange(slots, dtype=jnp.int32)
    mask = mask[..., None] & (position < take[..., None])
    units = jnp.where(mask, first[..., None] + children, 0)
  if arrays.leaf_rows is not None:
    units = jnp.where(mask, arrays.leaf_rows[units], 0)
  return units, mask


def sample(
    key: jax.Array,
    hierarchy: hierarchy_lib.Hierarchy,
    plan: stages_lib.SamplingPlan,
    step: jax.Array | int,
) -> tuple[jax.Array, jax.Array]:
  """Draw the examples of one step: Algorithm 1 for any number of stages.

  At each stage every unit chosen above draws its children uniformly without
  replacement: n of them (`FixedSize`), a binomial number (`Poisson`) or all
  (`All`), always in uniformly random order. Draws in different units, stages
  and steps are independent, but for those of one pass of `RandomAllocation`,
  which share the assignment of units to steps. The cost depends on the number
  of slots, not on the number of children; only a pass costs time (not memory)
  in proportion to the number of primary units. The distance from the ideal draw
  is at most `plan.sampler_error`.

  Args:
    key: the run's key for sampling; keep it secret, the guarantee rests on it.
    hierarchy: the public sizes.
    plan: one stage per level.
    step: int32 whole number >= 0; may be traced. The sample is a pure function
      of (key, step).

  Returns:
    Indices and mask: int32 rows of the data arrays (leaf ids if the hierarchy
    has no `leaf_rows`), and bool, both [n1, .., nL] with the slots of
    `sampler_error.capacities`, after a leading [tasks] for form
    "independent". Within each unit the drawn children come first and padding
    last; masked-out slots hold 0.

  Raises:
    PlanError: the plan does not fit the hierarchy.

  Examples:
    >>> from episodic_dp import plan, private, sampling
    >>> h = plan.Hierarchy.regular((100, 20), levels=("user", "example"))
    >>> p = plan.SamplingPlan((plan.FixedSize(8), plan.FixedSize(3)))
    >>> rows, mask = sampling.sample(private.secret_key(), h, p, step=0)
    >>> rows.shape, bool(mask.all())
    ((8, 3), True)
  """
  static, arrays = _prepare(hierarchy, plan)
  return _draw(key, step, arrays, static)

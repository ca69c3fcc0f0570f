"""Algorithm 1 of the paper for any number of stages, inside `jit`.

Source: Tombs, Kotevska and Young, "Privacy Amplification for Episodic Training
Methods" (2022), Algorithm 1, extended from fixed sizes to `Poisson`, `All` and
passes over the primary units (`RandomAllocation`).
"""

import functools

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.plan import sampler_error
from episodic_dp.sampling import draws

# Used instead of a step number in the key of a pass; step numbers are smaller.
_PASSES = np.uint32(1 << 31)


def sample(
    key: jax.Array,
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    step: jax.Array | int,
) -> tuple[jax.Array, jax.Array]:
  """Sample the examples of one step: Algorithm 1 for any number of stages.

  At each stage every sampled unit samples its children uniformly without
  replacement: n of them (`FixedSize`), a binomial number (`Poisson`) or all
  (`All`), always in uniformly random order. Samples of different units, stages
  and steps are independent, except for the steps of one pass of
  `RandomAllocation`, which share the assignment of units to steps. The cost
  depends on the number of slots, not on the number of children; only a pass
  takes time (not memory) in proportion to the number of primary units. The
  distance from the ideal sample is at most `plan.sampler_error`.

  Args:
    key: the run's sampling key; the guarantee requires that it stays secret.
    hierarchy: the public sizes.
    plan: one stage per level.
    step: int32 whole number >= 0; may be traced. The sample is a pure function
      of (key, step).

  Returns:
    Indices and mask: int32 rows of the data arrays (leaf ids if the hierarchy
    has no `leaf_rows`), and bool, both [n1, .., nL] with the slots of
    `sampler_error.capacities`, after a leading [tasks] for form
    "independent". Within each unit the sampled children come first, then
    padding; masked-out slots hold 0.

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
  return _draw(key, hierarchy, plan, step)


@functools.partial(jax.jit, static_argnames=("hierarchy", "plan"))
def _draw(
    key: jax.Array,
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    step: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Sample; compiled once for each hierarchy (by identity) and plan."""
  plan_lib.validate(hierarchy, plan)
  slots = sampler_error.capacities(hierarchy, plan)
  units = jnp.zeros(plan.repeats, jnp.int32)
  mask = jnp.ones(plan.repeats, bool)
  step_key = jax.random.fold_in(key, step)
  for k, stage in enumerate(plan.stages):
    # One number per slot, and a last one for the count.
    bits = draws.random_bits(
        jax.random.fold_in(step_key, k), (*units.shape, slots[k] + 1)
    )
    first, children = hierarchy.families(k, units, jnp)
    assigned = None
    if isinstance(stage, plan_lib.RandomAllocation):
      assigned, children = draws.draw_assigned(
          jax.random.fold_in(key, _PASSES),
          step,
          units=hierarchy.num_units(0),
          steps=stage.steps,
          slots=slots[k],
      )
    take = jnp.minimum(children, slots[k])
    if isinstance(stage, plan_lib.Poisson):
      tables = sampler_error.count_tables(stage, hierarchy.child_counts(k))
      take = draws.draw_counts(bits[..., -1, :], children, tables)
    drawn = draws.draw_ordered(bits[..., :-1, :], children, slots[k])
    if assigned is not None:
      drawn = assigned[drawn]
    slot = lax.broadcasted_iota(jnp.int32, drawn.shape, drawn.ndim - 1)
    mask = mask[..., None] & (slot < take[..., None])
    units = jnp.where(mask, first[..., None] + drawn, 0)
  if hierarchy.leaf_rows is not None:
    units = jnp.where(mask, jnp.asarray(hierarchy.leaf_rows)[units], 0)
  return units, mask

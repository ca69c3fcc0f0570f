"""One private meta-step: sample, clip each task, sum, noise once, update.

With a plan without an episode the tasks are single examples, and the step is
that of DP-SGD; below, read "examples" for "tasks" then.

[M] "Meta-Learning with Differential Privacy" (DP-MAML), Algorithm 1, with the
sum divided by the expected, public number of tasks instead of the drawn one.

Formal guarantees
-----------------
The released vector of a step is the sum over the drawn tasks of gradients
clipped to C, plus N(0, (z C)^2 I), which is what `accounting` accounts for the
same hierarchy, plan and mechanism; or that sum and a noised count, which
together cost the same, where the clip norm adapts (`adaptive` says when nothing
is guaranteed). Everything else that a step returns, but for `State.key` and
`State.clip`, is a function of released vectors and public constants, unless
`Compute(diagnostics=True)` asks for the entries named "private/...". The
guarantee holds against whoever does not know `State.key`.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.private import adaptive
from episodic_dp.private import checks
from episodic_dp.private import noise
from episodic_dp.private import sharding
from episodic_dp.private import streaming
from episodic_dp.private import task_sum

# What each key of a step is folded with. Changing one changes every run.
_SAMPLING, _AUGMENTATION, _NOISE, _PARAMETERS, _INNER_NOISE, _COUNT = range(6)

Metrics = dict[str, jax.Array]


def default_microbatch_size() -> int:
  """Tasks that a device computes together unless `Compute` says otherwise.

  One on a CPU, where batched products are slower than single ones; several on
  an accelerator, which is busy only with wide products.
  """
  return 1 if jax.default_backend() == "cpu" else 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute:
  """How a step is computed; no setting changes what it guarantees.

  Attributes:
    microbatch_size: tasks that a device computes together, whose gradients are
      in its memory at once; by default `default_microbatch_size`.
    mesh: devices that share the tasks of a step out, along its one axis `tasks`
      (`training.make_mesh`); None for one device. The sampled tasks and the
      noise are the same bits whatever the mesh, the parameters up to rounding.
    diagnostics: also return "private/..." metrics, which are outside the
      guarantee: keep them apart and unpublished.
    block_bytes: for data that stay on the host, bytes of images that are
      handed to the device at once (at least one chunk of tasks); about three
      such blocks are held, one of them on the host.
    noise_terms: how many independent normals the noise on a released number is
      the sum of, over the root of how many: as normal as one, and harder to
      undo by its last bits (docs/decisions/floating_point.md); 4 is what others
      take.
  """

  microbatch_size: int = dataclasses.field(
      default_factory=default_microbatch_size
  )
  mesh: jax.sharding.Mesh | None = None
  diagnostics: bool = False
  block_bytes: int = 2**26
  noise_terms: int = 1

  def __post_init__(self) -> None:
    for name in ("microbatch_size", "block_bytes", "noise_terms"):
      if getattr(self, name) < 1:
        raise ValueError(f"{name} {getattr(self, name)} must be at least 1")
    if self.mesh is not None:
      sharding.check(self.mesh)


class State(NamedTuple):
  """What a run is made of between two steps.

  Attributes:
    params: the meta-parameters.
    opt_state: the optimizer's.
    step: int32 scalar, steps done.
    key: the run's secret key (typed), the same in all steps.
    clip: what the clip norm adapts by (see `adaptive`), () where it is fixed;
      with clipping="percentile_window" it holds norms of single tasks, which
      are private data.
  """

  params: Any
  opt_state: Any
  step: jax.Array
  key: jax.Array
  clip: adaptive.Clip = ()


def init(
    key: jax.Array,
    learner: learners.Learner,
    optimizer: optax.GradientTransformation,
    mechanism: plan_lib.Mechanism,
    *,
    params: Any = None,
) -> State:
  """The state before the first step.

  Args:
    key: the run's secret key, a scalar typed key (`jax.random.key` or
      `wrap_key_data`).
    learner: as in `make_meta_step`.
    optimizer: an Optax transformation.
    mechanism: what will be released.
    params: where to start (copied); None draws them with the learner.

  Raises:
    ValueError: the key is not a typed key.
  """
  checks.check_key(key)
  if params is None:
    params = learner.init(jax.random.fold_in(key, _PARAMETERS))
  data = jnp.array(jax.random.key_data(key), copy=True)
  return State(
      _copy(params),
      _copy(optimizer.init(params)),
      jnp.zeros((), jnp.int32),
      jax.random.wrap_key_data(data, impl=jax.random.key_impl(key)),
      adaptive.init(mechanism, params),
  )


def _copy(tree: Any) -> Any:
  """New arrays: a step donates its state, the caller keeps the originals."""
  return jax.tree.map(lambda a: jnp.array(a, copy=True), tree)


def make_meta_step(
    learner: learners.Learner,
    optimizer: optax.GradientTransformation,
    dataset: dataset_lib.Dataset,
    release: plan_lib.Release,
    *,
    compute: Compute | None = None,
) -> Callable[[State], tuple[State, Metrics]]:
  """The function that makes one step, compiled, its state donated.

  With the data on the device a step is one call. Data that stay on the host
  (`dataset.resident` is false) give the same bits: what the next step draws is
  gathered while this one computes; see `streaming`.

  Args:
    learner: what is trained, see `learners.Learner`: of a task its
      `meta_gradient` is clipped, and that of step i is `at_step(i)`.
    optimizer: an Optax transformation of the noised mean gradient.
    dataset: the images, kept on the device unless `resident` is false, and the
      tree of their units.
    release: how tasks are sampled and what is released, of data with the sizes
      of `dataset.hierarchy`. The clip unit is the task, or the example where
      inner steps are noisy (see `sample_level`) or the plan has no episode:
      examples are then sampled and clipped by themselves (DP-SGD), the learner
      adapts to nothing (`learners.Supervised`), and `dataset.labels` (int32
      [rows]) are classes.
    compute: how to compute it; None for `Compute()`.

  Returns:
    state -> (state, metrics). Metrics: "step" (int32, steps done) and
    "update_norm" (float32, l2 norm of the optimizer's update), which are
    functions of released quantities, and with "private_quantile" "clip_norm"
    (float32, that of the step). With diagnostics also "private/loss",
    "private/accuracy" (on queries; none for regression), "private/clipped"
    (share of the tasks), "private/norm" (mean raw norm), "private/tasks" and
    "private/non_finite" (counts), and with "percentile_window"
    "private/clip_norm".

  Raises:
    plan.PlanError: plan, data, learner or mechanism contradict one another, or
      the images do not fit on the device.
    plan.UnsoundPlanError: a record recurs that the release does not count, or
      no proof covers the learner or its network.
  """
  # Not a default: a module that is only imported asks for no device.
  compute = compute or Compute()
  checks.check(learner, dataset, release)
  plan, mechanism = release.plan, release.mechanism
  episode = plan.episode
  targets = dataset.targets
  if episode is None:
    tasks = plan_lib.examples_per_step(release.hierarchy, plan)
  else:
    tasks = plan_lib.tasks_per_step(release.hierarchy, plan)
  clip_units = tasks
  if mechanism.noisy_inner_steps:  # They are the query examples.
    assert episode is not None  # Checked above.
    clip_units *= episode.way * episode.query

  def draw(key: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
    indices, mask = sampling.sample(
        jax.random.fold_in(key, _SAMPLING), release.hierarchy, plan, step
    )
    if episode is None:
      # Drawn examples first: only their chunks are computed.
      mask = mask.reshape(-1)
      order = jnp.argsort(~mask, stable=True)
      indices, mask = indices.reshape(-1, 1, 1)[order], mask[order]
    else:
      indices, mask = sampling.task_indices(indices, mask, plan)
    return dataset.rows(indices), mask

  def begin(state: State, slots: int | None = None) -> task_sum.Totals:
    if slots is not None:
      slots += -slots % compute.microbatch_size
    return task_sum.zeros(
        state.params,
        state.clip,
        diagnostics=compute.diagnostics,
        targets=targets,
        slots=slots,
    )

  def add(
      state: State,
      totals: task_sum.Totals,
      tasks: task_sum.Tasks,
      first: jax.Array | int,
      stride: int = 1,
  ) -> task_sum.Totals:
    return task_sum.add_tasks(
        learner.at_step(state.step),
        mechanism,
        state.params,
        totals,
        tasks,
        _step_key(state.key, _AUGMENTATION, state.step),
        state.clip,
        first=first,
        stride=stride,
        episode=episode,
        rotate=dataset.rotate,
        targets=targets,
        microbatch_size=compute.microbatch_size,
        inner_key=_step_key(state.key, _INNER_NOISE, state.step),
    )

  def finish(
      state: State, totals: task_sum.Totals, mask: jax.Array
  ) -> tuple[State, Metrics]:
    metrics = task_sum.summarise(totals.facts, mask)
    total = noise.add_noise(
        _step_key(state.key, _NOISE, state.step),
        totals.sum,
        adaptive.stddev(mechanism, state.clip),
        terms=compute.noise_terms,
    )
    count_key = _step_key(state.key, _COUNT, state.step)
    norms = adaptive.gathered(state.clip, totals.norms)
    clip = adaptive.update(
        mechanism,
        state.clip,
        norms,
        count_key,
        tasks,
        terms=compute.noise_terms,
    )
    if mechanism.clipping == "private_quantile":
      metrics["clip_norm"] = adaptive.clip_norm(state.clip)
    elif mechanism.clipping == "percentile_window" and compute.diagnostics:
      metrics["private/clip_norm"] = adaptive.clip_norm(state.clip)
    mean = jax.tree.map(
        lambda g, p: (g / clip_units).astype(p.dtype), total, state.params
    )
    updates, opt_state = optimizer.update(mean, state.opt_state, state.params)
    step = state.step + 1
    metrics |= {"step": step, "update_norm": optax.tree.norm(updates)}
    params = optax.apply_updates(state.params, updates)
    return State(params, opt_state, step, state.key, clip), metrics

  if not dataset.resident:
    if compute.mesh is not None:
      raise plan_lib.PlanError(
          f"resident=False with a mesh of {compute.mesh.size} devices: data on"
          " the host go to one device; pass mesh=None"
          " (config.compute.devices=1), or leave resident=True"
      )
    return streaming.Step(
        draw=draw,
        begin=begin,
        add=add,
        finish=finish,
        images=dataset.images,
        chunk=compute.microbatch_size,
        block_bytes=compute.block_bytes,
        labels=dataset.labels if episode is None else None,
    )

  mesh = compute.mesh
  total: Callable[..., task_sum.Totals]
  if mesh is None:
    total = lambda state, drawn: add(state, begin(state), drawn, 0)  # noqa: E731
    place, outputs = jnp.asarray, None
  else:
    total = sharding.summed(mesh, begin, add)
    place = functools.partial(sharding.replicate, mesh)
    outputs = sharding.everywhere(mesh)

  def update(
      state: State, images: jax.Array, labels: jax.Array | None
  ) -> tuple[State, Metrics]:
    rows, mask = draw(state.key, state.step)
    drawn = task_sum.Tasks(images, rows, mask, labels)
    return finish(state, total(state, drawn), mask)

  compiled = jax.jit(update, donate_argnums=0, out_shardings=outputs)
  # Arguments, not constants of the program: they would be compiled in.
  images, labels = _on_device(dataset.images, place), None
  if episode is None:
    labels = place(np.asarray(dataset.labels, np.int32))
  if mesh is None:
    return lambda state: compiled(state, images, labels)
  return sharding.Step(mesh, compiled, (images, labels))


def _on_device(images: Any, place: Callable[[Any], Any]) -> jax.Array:
  try:
    return place(images)
  except jax.errors.JaxRuntimeError as e:
    if "RESOURCE_EXHAUSTED" not in str(e):
      raise
    raise plan_lib.PlanError(
        f"the images ({images.nbytes / 2**30:.1f} GiB) do not fit on the"
        " device: leave them on the host with ArrayDataset(resident=False)"
        " (config.compute.resident=False)"
    ) from e


def _step_key(key: jax.Array, purpose: int, step: jax.Array) -> jax.Array:
  return jax.random.fold_in(jax.random.fold_in(key, purpose), step)

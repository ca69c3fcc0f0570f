"""The private step as users call it: on the devices, or fed from the host.

`step` has the computation and its formal guarantees.
"""

from collections.abc import Callable
import functools
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import backends
from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.private import checks
from episodic_dp.private import feed
from episodic_dp.private import quantile
from episodic_dp.private import sharding
from episodic_dp.private import state as state_lib
from episodic_dp.private import step as step_lib


class Step(Protocol):
  """One step of a run; it is compiled on its first call."""

  def __call__(
      self, state: state_lib.State
  ) -> tuple[state_lib.State, state_lib.Metrics]:
    """Take one step; the state is donated."""

  def compile(self, state: state_lib.State) -> None:
    """Compile the step for states like this one, without taking it.

    Processes that compile at different speeds do this before the first step: on
    a CPU its collectives wait for 30 s and then fail.
    """


def make_meta_step(
    learner: learners.Learner,
    optimizer: optax.GradientTransformation,
    dataset: dataset_lib.Dataset,
    release: plan_lib.Release,
    *,
    compute: step_lib.Compute | None = None,
) -> Step:
  """Return the function that takes one step, compiled; it donates its state.

  With the data on the device a step is one call. With data on the host
  (`dataset.resident` is false) the examples of the next step are gathered while
  this one is computed, with the same result up to rounding; see `feed`.

  Args:
    learner: see `learners.Learner`; the `meta_gradient` of a task is clipped,
      and the learner of step i is `at_step(i)`.
    optimizer: an Optax transformation of the noised mean gradient.
    dataset: the images, kept on the device unless `resident` is false, and the
      tree of their units.
    release: sampling plan and mechanism, for data with the sizes of
      `dataset.hierarchy`. The clip unit is the task. It is the example if inner
      steps are noisy (see `sample_level`) or the plan has no episode. Without
      an episode, examples are sampled and clipped singly (DP-SGD), the learner
      adapts to nothing (`learners.Supervised`), and `dataset.labels` (int32
      [rows]) are the classes.
    compute: settings of the computation; None for `Compute()`.

  Returns:
    state -> (state, metrics). Metrics: "step" (int32, steps done) and
    "update_norm" (float32, l2 norm of the optimizer's update), both functions
    of released quantities, and with "private_quantile" "clip_norm" (float32,
    that of the step). With diagnostics also "private/loss" (on queries),
    "private/clipped" (share of the tasks), "private/norm" (mean raw norm),
    "private/tasks" and "private/non_finite" (counts), and with
    "percentile_window" "private/clip_norm".

  Raises:
    RunError: JAX_ENABLE_X64 is set.
    plan.PlanError: plan, data, learner or mechanism contradict one another.
    plan.UnsoundPlanError: a record recurs that the release does not count, or
      no proof covers the learner or its network.

  Examples:
    >>> import optax
    >>> from episodic_dp import data, learners, models, plan, private
    >>> train = data.load("sinusoid", participants=50).train
    >>> p = plan.SamplingPlan(
    ...     (plan.Poisson(0.1), plan.FixedSize(4)),
    ...     episode=plan.Episode(way=1, shot=2, query=2),
    ... )
    >>> m = plan.Mechanism(clip_unit="participant", noise_multiplier=1.0)
    >>> r = plan.Release(train.hierarchy, p, m)
    >>> learner = learners.MAML(
    ...     models.mlp(1, (4,), (1, 1, 1)), inner_steps=1,
    ...     task_loss=learners.squared_error,
    ... )
    >>> optimizer = optax.adam(0.01)
    >>> state = private.init(private.secret_key(), learner, optimizer, m)
    >>> step = private.make_meta_step(learner, optimizer, train, r)
    >>> state, metrics = step(state)
    >>> int(state.step)
    1
  """
  # Not a default argument: importing a module must not request a device.
  compute = compute or step_lib.Compute()
  backends.check_types()
  checks.check(learner, dataset, release)
  settings = step_lib.Settings(learner, optimizer, dataset, release, compute)
  mesh = compute.device_mesh()
  made: Step
  if dataset.resident:
    made = _Resident(settings, dataset, mesh)
  else:
    made = feed.Feed(settings, dataset, mesh)
  if release.mechanism.clipping == "percentile_window":
    return _Windowed(made, release.mechanism)
  return made


class _Resident:
  """A step on data that are on one device, or on every device of a mesh.

  A state that is still on one device, such as the first one, is replicated. If
  the images do not fit, XLA reports it: keep them on the host with
  `ArrayDataset(resident=False)`.
  """

  def __init__(
      self,
      settings: step_lib.Settings,
      dataset: dataset_lib.Dataset,
      mesh: jax.sharding.Mesh | None,
  ):
    update = functools.partial(step_lib.take, settings, mesh=mesh)
    place: Callable[[Any], Any] = jnp.asarray
    options = {}
    if mesh is not None:
      place = functools.partial(sharding.replicate, mesh)
      options["out_shardings"] = sharding.replicated(mesh)
    self._mesh = mesh
    self._update = backends.jit(update, donate_argnums=0, **options)
    self._inside = jax.jit(update)
    self._compiled: Any = None
    labels = None
    if settings.release.plan.episode is None:
      labels = place(np.asarray(dataset.labels, np.int32))
    # Arguments of the step, not constants that are compiled in.
    self._data = (
        place(settings.noise_multiplier),
        place(dataset.images),
        labels,
    )

  def __call__(
      self, state: state_lib.State
  ) -> tuple[state_lib.State, state_lib.Metrics]:
    if isinstance(state.step, jax.core.Tracer):  # Within another program.
      return self._inside(state, *self._data)
    if self._mesh is not None:
      state = sharding.placed_state(self._mesh, state)
    return (self._compiled or self._update)(state, *self._data)

  def compile(self, state: state_lib.State) -> None:
    """See `Step`."""
    if self._mesh is not None:
      state = sharding.replicate(self._mesh, state)
    # Later calls use this program: `jit` would compile again.
    self._compiled = self._update.lower(state, *self._data).compile()


class _Windowed:
  """A step whose clip norm the host sets between steps; see `quantile.push`."""

  def __init__(self, step: Step, mechanism: plan_lib.Mechanism):
    self._step, self._mechanism = step, mechanism

  def __call__(
      self, state: state_lib.State
  ) -> tuple[state_lib.State, state_lib.Metrics]:
    window: Any = state.clip
    state, metrics = self._step(state._replace(clip=window.bounds))
    # The step has donated its bounds.
    window = window._replace(bounds=state.clip)
    norms = metrics.pop("private/norms")
    return (
        state._replace(clip=quantile.push(self._mechanism, window, norms)),
        metrics,
    )

  def compile(self, state: state_lib.State) -> None:
    """See `Step`."""
    window: Any = state.clip
    self._step.compile(state._replace(clip=window.bounds))

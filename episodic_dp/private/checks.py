"""Checks of a run's data and learner, before anything is compiled."""

from collections.abc import Iterator
from typing import Any

from absl import logging
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.models import model as model_lib
from episodic_dp.private import sample_level
from episodic_dp.sampling import synthetic

# Leaves of a function `rows` that are all computed: about a second. Of more, so
# many are.
_COMPUTED_LEAVES, _PROBED_LEAVES = 2**18, 2**16
_BLOCK_BYTES = 2**26
# Clip norms and noise that float32 keeps, with room for sums and squares.
_MIN, _MAX = 1e-20, 1e20
_MARK = "optimization_barrier"  # Of an injected gradient, in a program.


def check(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    release: plan_lib.Release,
) -> None:
  """Refuse what cannot be trained, or what no proof covers."""
  plan, mechanism = release.plan, release.mechanism
  if not release.hierarchy.same_tree(dataset.hierarchy):
    raise plan_lib.PlanError(
        f"the release describes {release.hierarchy} and the data are"
        f" {dataset.hierarchy}: the guarantee would be of another sampler; make"
        " Release(dataset.hierarchy, plan, mechanism)"
    )
  _check_range(mechanism)
  _check_images(dataset.images)
  _check_rows(dataset)
  if plan.episode is None:
    _check_supervised(learner, dataset, mechanism)
    return
  for name, stated, actual in (
      ("order", mechanism.order, learner.order),
      ("inner_steps", mechanism.inner_steps, learner.inner_steps),
  ):
    if None not in (stated, actual) and stated != actual:
      raise plan_lib.PlanError(
          f"mechanism.{name} is {stated!r} and learner.{name} is {actual!r}:"
          " make them equal, since the guarantee is for the mechanism's"
      )
  _check_model(learner, dataset, plan.episode)
  if mechanism.noisy_inner_steps:
    check_sample_level(learner, dataset, plan, mechanism)


def _check_range(mechanism: plan_lib.Mechanism) -> None:
  """Refuse noise that float32 would flush to zero, or make infinite."""
  for name, norm, multiplier in (
      ("clip_norm", mechanism.clip_norm, mechanism.noise_multiplier),
      (
          "inner_clip_norm",
          mechanism.inner_clip_norm or 1.0,
          mechanism.inner_noise_multiplier,
      ),
  ):
    for value in (norm, norm * (multiplier or 1.0)):
      if not (np.isinf(norm) or _MIN <= value <= _MAX):
        raise plan_lib.PlanError(
            f"{name} {norm} with noise of {multiplier} times as much is out of"
            f" the range of float32: keep both within {_MIN} and {_MAX}, by"
            " scaling the loss"
        )


def _check_supervised(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    mechanism: plan_lib.Mechanism,
) -> None:
  """Check a plan without an episode: examples, labels, and the learner."""
  leaf = dataset.hierarchy.levels[-1]
  if mechanism.clip_unit != leaf or mechanism.noisy_inner_steps:
    raise plan_lib.PlanError(
        "the plan has no episode, so that every example is clipped by itself:"
        f" use clip_unit='{leaf}' without noisy inner steps, or give"
        " SamplingPlan(..., episode=Episode(way, shot, query))"
    )
  if learner.adapts:
    raise plan_lib.PlanError(
        f"{type(learner).__name__} adapts to support sets, and a plan without"
        " an episode has none: use learners.Supervised, or give an episode"
    )
  if dataset.rotate:
    raise plan_lib.PlanError(
        "rotate=True turns the classes of a task, and without an episode every"
        " example is learned alone, with the label of its own class, which a"
        " turned character is not of: use rotate=False"
        " (config.data.options.rotate=False)"
    )
  labels, rows = dataset.labels, dataset.images.shape[0]
  if (
      labels is None
      or np.shape(labels) != (rows,)
      or labels.dtype.kind not in "iu"
  ):
    raise plan_lib.PlanError(
        "without an episode labels are needed: give ArrayDataset(labels=...),"
        f" whole numbers [{rows}], the class of every row"
    )
  params = jax.eval_shape(learner.init, jax.random.key(0))
  image = jax.ShapeDtypeStruct((1, *dataset.images.shape[1:]), jnp.float32)
  logits = jax.eval_shape(learner.predict, params, None, image)
  classes = int(labels.max()) + 1
  if logits.shape[0] != 1 or logits.shape[1] < classes or labels.min() < 0:
    raise plan_lib.PlanError(
        f"the model gives logits {logits.shape[1:]} and the labels are"
        f" {int(labels.min())} to {classes - 1}: build it with {classes}"
        f" outputs (--config.model.outputs={classes})"
    )
  shape = tuple(dataset.images.shape[1:])
  check_network(learner.model, shape, leaf)


def _check_images(images: Any) -> None:
  axes = np.ndim(images)
  known = (2, 3, 4) if np.result_type(images) == np.float32 else (4,)
  if axes not in known or 0 in np.shape(images):
    raise plan_lib.PlanError(
        f"images of shape {np.shape(images)}: give [rows, height, width,"
        " channels], or of float32 also [rows, time, channels] or [rows,"
        " features], none of them 0"
    )
  if images.dtype not in (np.uint8, np.float32):
    raise plan_lib.PlanError(
        f"images of dtype {images.dtype}: give uint8 (0 to 255) or float32"
    )
  if images.dtype == np.float32:
    bad = np.concatenate([
        ~np.isfinite(np.asarray(block)).all(axis=tuple(range(1, axes)))
        for block in _blocks(images)
    ])
    if bad.any():
      raise plan_lib.PlanError(
          f"{bad.sum()} images hold NaN or infinity, first row"
          f" {int(np.argmax(bad))}: remove or repair them"
      )


def _blocks(images: np.ndarray) -> Iterator[np.ndarray]:
  """Rows of some megabytes: a mapped file may be larger than all memory."""
  rows = max(1, _BLOCK_BYTES * len(images) // max(1, images.nbytes))
  for start in range(0, len(images), rows):
    yield images[start : start + rows]


def _check_rows(dataset: dataset_lib.Dataset) -> None:
  """Check that leaves have rows of the images, distinct but for copies.

  All leaves, or it is said that some of them were not.

  Raises:
    PlanError: a row lies outside the images.
    UnsoundPlanError: a record recurs, which the accountant is not told.
  """
  hierarchy, available = dataset.hierarchy, dataset.images.shape[0]
  in_order = hierarchy.leaf_rows is None
  if (
      in_order
      and dataset.rows is dataset_lib.identity
      and hierarchy.num_leaves <= available
  ):
    return  # Leaf i is row i, however many there are.
  leaf_rows, last = hierarchy.leaf_rows, hierarchy.num_leaves - 1
  if dataset.rows is dataset_lib.identity:
    rows = np.asarray([last] if leaf_rows is None else leaf_rows)
  elif _are_in_range(dataset):
    return
  else:
    # Chosen before there is an array of them: of 10^8 people it is gigabytes.
    leaves = np.arange(min(hierarchy.num_leaves, _COMPUTED_LEAVES))
    if hierarchy.num_leaves > _COMPUTED_LEAVES:
      leaves = np.linspace(0, last, _PROBED_LEAVES).astype(np.int64)
      logging.warning(
          "the rows of %d of %d leaves of '%s' were checked: that the others"
          " lie in the images%s is taken on trust",
          leaves.size,
          hierarchy.num_leaves,
          dataset.name,
          "" if hierarchy.copies else ", each in a row of its own,",
      )
    if leaf_rows is not None:
      leaves = leaf_rows[leaves]
    rows = np.asarray(dataset.rows(jnp.asarray(leaves, jnp.int32)))
  if rows.min() < 0 or rows.max() >= available:
    worst = int(rows.max() if rows.max() >= available else rows.min())
    raise plan_lib.PlanError(
        f"the hierarchy asks for row {worst} of {available} images: rows must"
        f" lie in 0 .. {available - 1}"
    )
  distinct, counts = np.unique(rows, return_counts=True)
  recurs = counts.max() > 1 or hierarchy.num_leaves > available
  if recurs and not hierarchy.leaves_recur:
    raise plan_lib.UnsoundPlanError(
        f"the hierarchy has {hierarchy.num_leaves} leaves that are said not to"
        " recur (copies=False), and"
        f" several of them are one row, such as {distinct[counts.argmax()]} of"
        f" {available} images: what recurs costs more than is accounted for;"
        " build it with copies=True, and with most_copies where they are"
        " counted"
    )


def _are_in_range(dataset: dataset_lib.Dataset) -> bool:
  """Return whether the construction of rows keeps them in range."""
  owned, hierarchy = dataset.rows, dataset.hierarchy
  return (
      isinstance(owned, synthetic.ParticipantRows)
      and owned.classes * owned.examples_per_class <= dataset.images.shape[0]
      and hierarchy.copies
      and hierarchy.leaf_rows is None
      and hierarchy.num_leaves <= owned.hierarchy.num_leaves
  )


def _check_model(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    episode: plan_lib.Episode,
) -> None:
  """PlanError unless the learner maps this episode to logits [n, way]."""
  shape = tuple(dataset.images.shape[1:])
  targets, taken = dataset.targets, dataset.image_shape
  expected = learner.model.input_shape
  if expected is not None and tuple(expected) != taken:
    raise plan_lib.PlanError(
        f"the model takes examples of shape {tuple(expected)} and the data set"
        f" has {taken}: build the model with input_shape={taken}"
    )
  if dataset.rotate and (len(shape) != 3 or shape[0] != shape[1]):
    raise plan_lib.PlanError(
        f"rotate=True turns images by 90 degrees, and the examples have shape"
        f" {shape}: pad images to a square or set rotate=False"
    )
  if targets and episode.way != 1:
    raise plan_lib.PlanError(
        f"way {episode.way} with a data set of points: a task of regression has"
        " no classes, use way=1"
    )

  def logits(key: jax.Array, images: jax.Array) -> jax.Array:
    task = sampling.make_episode(key, images, episode, targets=targets)
    params = learner.init(key)
    return learner.predict(params, task.support, task.query.images)

  images = jax.ShapeDtypeStruct(
      (episode.way, episode.shot + episode.query, *shape), dataset.images.dtype
  )
  result = jax.eval_shape(logits, jax.random.key(0), images)
  wanted = (episode.way * episode.query, targets or episode.way)
  if tuple(result.shape) != wanted:
    raise plan_lib.PlanError(
        f"the model gives logits of shape {tuple(result.shape)} for an episode"
        f" of way {episode.way}, and {wanted} is needed: build the model with"
        f" way={targets or episode.way}"
    )


# Sample-level training --------------------------------------------------------


def check_sample_level(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
) -> None:
  """Refuse learners and networks that the proof does not cover.

  Raises:
    UnsoundPlanError: the learner is not a first-order one that reads the
      support set through `inner_steps` injected gradients alone, the same in
      every step; or its network mixes examples.
  """
  name, unit = type(learner).__name__, mechanism.clip_unit
  for broken, reason in (
      (
          not learner.example_gradients,
          f"{name} cannot be trained with clip_unit '{unit}': its update does"
          " not split into gradients of single examples at noisily adapted"
          " parameters; use MAML with order='first'",
      ),
      (
          learner.loss_weights is not None,
          f"loss_weights with clip_unit '{unit}': the gradient of a query"
          " example is taken after the last inner step alone; leave"
          " loss_weights out",
      ),
      (
          _changes_with_step(learner),
          f"{name}.at_step gives another, unchecked learner with clip_unit"
          f" '{unit}': leave at_step out, or return the learner itself",
      ),
      (
          learner.model.random is not None,
          f"random layers (dropout) with clip_unit '{unit}': the examples of a"
          " task share their draws, for which nothing is proved; use a network"
          " without them (random_layers=False)",
      ),
  ):
    if broken:
      raise plan_lib.UnsoundPlanError(reason)
  params, support = _params_and_support(learner, dataset, plan)
  steps = _requested_steps(learner, params, support)
  stated = mechanism.inner_steps or 0
  if steps not in (list(range(stated)), ["traced"] * stated):
    raise plan_lib.UnsoundPlanError(
        f"{name}.adapt asks for the inner gradients {steps} and the mechanism"
        f" states inner_steps={mechanism.inner_steps}: each of these must be"
        " asked for once, since each is released once"
    )
  if _reads_support(learner, params, support):
    raise plan_lib.UnsoundPlanError(
        f"{name}.adapt reads the support set by another way than"
        " inner_gradient(loss)(params, support, step), with the support set as"
        " it is and a loss of one example: nothing clips that; use MAML with"
        " order='first'"
    )
  check_network(learner.model, dataset.image_shape, mechanism.clip_unit)


def check_network(
    model: model_lib.Model, input_shape: tuple[int, ...], clip_unit: str
) -> None:
  """Refuse a network in which one example changes another's outputs.

  The network is tried on random weights (`models.model`), also as its random
  layers draw; what it claims is not read.

  Args:
    model: `init` and `apply`.
    input_shape: of one example, such as (H, W, C).
    clip_unit: the level of the examples, for the message.

  Raises:
    UnsoundPlanError: it mixes examples.
  """
  if model_lib.mixes(model, input_shape):
    raise plan_lib.UnsoundPlanError(
        f"clip_unit '{clip_unit}' with a model that mixes examples (changing"
        " one of them changes the outputs of others, as batch normalisation"
        f" does): a gradient would belong to no single {clip_unit}; use"
        " norm='group' or another layer that treats every example alone, such"
        " as layer normalisation"
    )


def _changes_with_step(learner: learners.Learner) -> bool:
  """Return whether `at_step` gives another learner in some step."""
  found: list[Any] = []
  jax.eval_shape(
      lambda step: found.append(learner.at_step(step)),
      jax.ShapeDtypeStruct((), jnp.int32),
  )
  return any(other is not learner for other in found)


def _params_and_support(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    plan: plan_lib.SamplingPlan,
) -> tuple[Any, Any]:
  """Shapes and dtypes of the parameters and of a support set."""
  episode = plan.episode
  assert episode is not None  # Checked before.

  def begin(key: jax.Array, images: jax.Array) -> tuple[Any, Any]:
    task = sampling.make_episode(
        key, images, episode, targets=dataset.targets
    )
    return learner.init(key), task.support

  examples = episode.shot + episode.query
  return jax.eval_shape(
      begin,
      jax.random.key(0),
      jax.ShapeDtypeStruct(
          (episode.way, examples, *dataset.images.shape[1:]),
          dataset.images.dtype,
      ),
  )


def _requested_steps(
    learner: learners.Learner, params: Any, support: Any
) -> list[Any]:
  """The inner steps whose gradients `adapt` requests, in order.

  A step that a scan counts is "traced".
  """
  requested: list[Any] = []

  def injected(loss: sample_level.Loss) -> sample_level.Gradient:
    del loss

    def gradient(params: Any, examples: Any, step: Any) -> Any:
      del examples
      traced = isinstance(step, jax.core.Tracer)
      requested.append("traced" if traced else int(step))
      zeros = jax.tree.map(jnp.zeros_like, params)
      return lax.optimization_barrier(zeros)  # `_MARK`.

    return gradient

  def adapt(params: Any, support: Any) -> Any:
    return learner.adapt(params, support, inner_gradient=injected)

  # Not compiled: a loop would request once, however often it runs.
  with jax.disable_jit():
    program = jax.make_jaxpr(adapt)(params, support)
  found = sum(e.primitive.name == _MARK for e in program.eqns)
  # A mark that is not at the top level is in a loop or branch of the program,
  # which runs as often as data decide.
  if found == len(requested):
    return requested
  return [*requested, "an unknown number"]


def _reads_support(
    learner: learners.Learner, params: Any, support: Any
) -> bool:
  """Return whether anything else reads the support set.

  Here the injected gradients are those of a constant example, so that nothing
  in the program that leads to the adapted parameters may read the support set.
  """
  others: list[Any] = []

  def adapt(params: Any, support: Any) -> Any:
    own = jax.tree.leaves(support)

    def injected(loss: sample_level.Loss) -> sample_level.Gradient:
      def gradient(params: Any, examples: Any, step: Any) -> Any:
        given = jax.tree.leaves(examples)
        if [id(a) for a in given] != [id(a) for a in own]:
          others.append(examples)  # Something made of them.
        one = [jnp.zeros((1, *a.shape[1:]), a.dtype) for a in own]
        one = jax.tree.unflatten(jax.tree.structure(support), one)
        return jax.grad(loss)(params, one, step)

      return gradient

    return learner.adapt(params, support, inner_gradient=injected)

  program = jax.make_jaxpr(adapt)(params, support).jaxpr
  needed = {id(v) for v in program.outvars}
  for equation in reversed(program.eqns):
    if any(id(v) in needed for v in equation.outvars):
      needed |= {id(v) for v in equation.invars}
  last = program.invars[-len(jax.tree.leaves(support)) :]
  return bool(others) or any(id(v) in needed for v in last)

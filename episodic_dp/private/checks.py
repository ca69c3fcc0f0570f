"""Checks of a run's data and learner before anything is compiled."""


import jax
from jax import ad_checkpoint
import jax.numpy as jnp
import numpy as np

from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.errors import DataError
from episodic_dp.errors import PlanError
from episodic_dp.errors import UnsoundPlanError
from episodic_dp.models import model as model_lib
from episodic_dp.models.model import Params
from episodic_dp.private import sample_level
from episodic_dp.sampling import episodes
from episodic_dp.sampling import synthetic

# The clip norms and noise that float32 represents, also in sums and squares.
_MIN, _MAX = 1e-20, 1e20
_MARK = "injected gradient"  # Its name in a traced program.


def check(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    release: plan_lib.Release,
) -> None:
  """Refuse settings that cannot be trained, or that no proof covers.

  The checks of `ArrayDataset`, of a config and of the mechanism are not
  repeated.

  Raises:
    DataError: an image is not finite, or of another dtype; or a row or the
      labels are missing.
    PlanError: data, plan, mechanism, learner and network do not fit together.
    UnsoundPlanError: a record recurs that the release does not count, or the
      proof covers neither the learner nor its network.
  """
  mechanism, episode = release.mechanism, release.plan.episode
  check_tree(dataset, release)
  _check_range(mechanism)
  _check_images(dataset.images)
  _check_rows(dataset)
  for name, stated, actual in (
      ("order", mechanism.order, learner.order),
      ("inner_steps", mechanism.inner_steps, learner.inner_steps),
  ):
    if None not in (stated, actual) and stated != actual:
      raise PlanError(
          f"mechanism.{name}={stated!r} and learner.{name}={actual!r}:"
          " expected equal values, since the guarantee is for the mechanism's"
      )
  if episode is None:
    _check_examples(learner, dataset, mechanism)
  else:
    _check_tasks(learner, dataset, episode)
  if mechanism.noisy_inner_steps:
    _check_sample_level(learner, dataset, release)
  if episode is None or mechanism.noisy_inner_steps:
    _check_network(learner, dataset, mechanism.clip_unit)


def check_tree(
    dataset: dataset_lib.Dataset, release: plan_lib.Release
) -> None:
  """Raise PlanError if a release describes another tree than the data's."""
  if not release.hierarchy.same_tree(dataset.hierarchy):
    raise PlanError(
        f"the release describes {release.hierarchy} and the data are"
        f" {dataset.hierarchy}, so its guarantee is for another sampler; use"
        " Release(dataset.hierarchy, plan, mechanism)"
    )


def _check_range(mechanism: plan_lib.Mechanism) -> None:
  """Refuse noise that float32 would flush to zero or overflow."""
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
        raise PlanError(
            f"{name}={norm} with noise of {multiplier} times as much: expected"
            f" both between {_MIN} and {_MAX}, the range of float32; scale the"
            " loss"
        )


def _check_images(images: np.ndarray) -> None:
  """Refuse images of another dtype, and numbers that are not finite."""
  if images.dtype not in (np.uint8, np.float32):
    raise DataError(
        f"images of dtype {images.dtype}: give uint8 (0 to 255) or float32"
    )
  if images.dtype == np.float32:
    # Row sums, which need no second array as large as the images.
    pixels = tuple(range(1, images.ndim))
    with np.errstate(invalid="ignore"):
      bad = ~np.isfinite(images.sum(pixels, dtype=np.float64))
    if bad.any():
      raise DataError(
          f"{bad.sum()} images hold NaN or infinity, first row"
          f" {int(np.argmax(bad))}: remove or repair them"
      )


def _check_rows(dataset: dataset_lib.Dataset) -> None:
  """Check that leaves have rows of the images, distinct without copies.

  Raises:
    DataError: a row is outside the images.
    UnsoundPlanError: a record recurs, and the release does not count it.
  """
  hierarchy, available = dataset.hierarchy, len(dataset.images)
  made = dataset.rows
  if isinstance(made, synthetic.ParticipantRows) and hierarchy.leaves_recur:
    if made.classes * made.examples_per_class <= available:
      return  # In range for every leaf; computing all of them takes long.
  rows = np.asarray(made(jnp.asarray(hierarchy.rows, jnp.int32)))
  outside = rows[(rows < 0) | (rows >= available)]
  if outside.size:
    raise DataError(
        f"the hierarchy refers to row {outside.max()} of {available} images:"
        " rows must"
        f" be in 0 .. {available - 1}"
    )
  counts = np.bincount(rows)
  if counts.max() > 1 and not hierarchy.leaves_recur:
    raise UnsoundPlanError(
        f"the hierarchy has {hierarchy.num_leaves} leaves with copies=False,"
        " so no record may recur, but"
        f" several of them are one row, such as {counts.argmax()} of"
        f" {available} images: it would cost more than is accounted for;"
        " build the hierarchy with copies=True, and give most_copies if the"
        " copies are counted"
    )
  most, primary = hierarchy.holders(-1), hierarchy.levels[0]
  if most > 1:
    owners = np.arange(hierarchy.num_units(0))
    for k in range(1, hierarchy.depth):
      owners = np.repeat(owners, hierarchy.child_counts(k))
    _, first, times = np.unique(
        owners * available + rows, return_index=True, return_counts=True
    )
    row = counts.argmax()
    if times.max() > 1:
      row = rows[first[times.argmax()]]
    if counts[row] > most or times.max() > 1:
      raise UnsoundPlanError(
          f"most_copies {most} of level '{hierarchy.levels[-1]}' is for records"
          f" that up to {most} units of level '{primary}' hold, each once, and"
          f" row {row} of the images is {counts[row]} leaves of"
          f" {np.unique(owners[rows == row]).size} such units: state the true"
          " count, and give no unit a record twice"
      )


def _check_examples(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    mechanism: plan_lib.Mechanism,
) -> None:
  """Check the learner and the labels of a plan without an episode."""
  leaf, labels = dataset.hierarchy.levels[-1], dataset.labels
  if mechanism.clip_unit != leaf or mechanism.noisy_inner_steps:
    raise PlanError(
        "the plan has no episode, so every example is clipped separately: use"
        f" clip_unit='{leaf}' without noisy inner steps, or give"
        " SamplingPlan(..., episode=Episode(way, shot, query))"
    )
  if learner.adapts:
    raise PlanError(
        f"{type(learner).__name__} adapts to support sets, and a plan without"
        " an episode has none: use learners.Supervised, or give an episode"
    )
  if labels is None:
    raise DataError(
        "a plan without an episode needs labels: give ArrayDataset(labels=...)"
    )
  params = jax.eval_shape(learner.init, jax.random.key(0))
  image = jax.ShapeDtypeStruct((1, *dataset.image_shape), jnp.float32)
  logits = jax.eval_shape(learner.predict, params, None, image)
  classes = int(labels.max()) + 1
  if logits.shape[-1] < classes or labels.min() < 0:
    raise PlanError(
        f"the model gives logits {logits.shape[1:]} and the labels are"
        f" {int(labels.min())} to {classes - 1}: build it with {classes}"
        f" outputs (in a command --config.model.outputs={classes})"
    )


def _check_tasks(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    episode: plan_lib.Episode,
) -> None:
  """Check that the learner maps the queries of a task to logits [n, way]."""
  params, task = _shapes(learner, dataset, episode)
  logits = jax.eval_shape(
      learner.predict, params, task.support, task.query.images
  )
  outputs = dataset.targets or episode.way
  wanted = (episode.way * episode.query, outputs)
  if logits.shape != wanted:
    raise PlanError(
        f"the model gives logits of shape {logits.shape} for an episode of way"
        f" {episode.way}: expected {wanted}; build the model with"
        f" way={outputs}"
    )


def _shapes(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    episode: plan_lib.Episode,
) -> tuple[Params, sampling.EpisodeBatch]:
  """Return the shapes and dtypes of the parameters and of a task."""

  def make(
      key: jax.Array, images: jax.Array
  ) -> tuple[Params, sampling.EpisodeBatch]:
    task = sampling.make_episode(
        key, images, episode, targets=dataset.targets
    )
    return learner.init(key), task

  shape = (episode.way, episode.shot + episode.query, *dataset.images.shape[1:])
  images = jax.ShapeDtypeStruct(shape, dataset.images.dtype)
  return jax.eval_shape(make, jax.random.key(0), images)


# Sample-level training --------------------------------------------------------


def _check_sample_level(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    release: plan_lib.Release,
) -> None:
  """Refuse learners that the proof does not cover.

  Raises:
    UnsoundPlanError: the learner is not first-order, or it does not read the
      support set only through `inner_steps` injected gradients that are the
      same in every step.
  """
  name, unit = type(learner).__name__, release.mechanism.clip_unit
  for broken, reason in (
      (
          not learner.example_gradients,
          f"{name} cannot be trained with clip_unit='{unit}': its update does"
          " not split into gradients of single examples at noisily adapted"
          " parameters; use MAML with order='first'",
      ),
      (
          learner.loss_weights is not None,
          f"loss_weights with clip_unit='{unit}': the proof covers gradients of"
          " query examples after the last inner step only; leave"
          " loss_weights out",
      ),
      (
          _changes_with_step(learner),
          f"{name}.at_step returns another, unchecked learner with clip_unit="
          f"'{unit}': leave at_step out, or return the learner itself",
      ),
      (
          learner.model.random is not None,
          f"random layers (dropout) with clip_unit='{unit}': the examples of a"
          " task share their random numbers, which no proof covers; use a"
          " network without them",
      ),
  ):
    if broken:
      raise UnsoundPlanError(reason)
  stated = release.mechanism.inner_steps or 0
  # Only tasks have noisy inner steps.
  params, task = _shapes(learner, dataset, release.plan.task_form)
  steps, leaks = _uses_of_support(learner, params, task.support)
  if steps not in (list(range(stated)), ["traced"] * stated):
    raise UnsoundPlanError(
        f"{name}.adapt requests the inner gradients {steps}, but the mechanism"
        f" has inner_steps={stated}: request each of them once, because each"
        " is released once"
    )
  if leaks:
    raise UnsoundPlanError(
        f"{name}.adapt reads the support set in another way than"
        " inner_gradient(loss)(params, support, step) with the unchanged"
        " support set and a loss of one example, so that part is not clipped;"
        " use MAML with order='first'"
    )


def _check_network(
    learner: learners.Learner, dataset: dataset_lib.Dataset, clip_unit: str
) -> None:
  """Refuse a network in which one example changes another's outputs.

  The network is tested on random weights (`models.model`), with and without its
  random layers; its declared property is not used.
  """
  if model_lib.mixes(learner.model, dataset.image_shape):
    raise UnsoundPlanError(
        f"clip_unit='{clip_unit}' with a model that mixes examples (changing"
        " one of them changes the outputs of others, as batch normalisation"
        f" does): a gradient would belong to no single {clip_unit}; use"
        " norm='group' or another layer that treats each example separately,"
        " such as layer normalisation"
    )


def _changes_with_step(learner: learners.Learner) -> bool:
  """Return whether `at_step` returns another learner in some step."""
  found: list[learners.Learner] = []
  jax.eval_shape(
      lambda step: found.append(learner.at_step(step)),
      jax.ShapeDtypeStruct((), jnp.int32),
  )
  return any(other is not learner for other in found)


def _uses_of_support(
    learner: learners.Learner, params: Params, support: episodes.Examples
) -> tuple[list[int | str], bool]:
  """Trace `adapt` with injected gradients of a constant example.

  Returns:
    The inner steps whose gradients are requested, in order ("traced" for one
    that a loop counts); and whether anything else on the way to the adapted
    parameters reads the support set.
  """
  requested: list[int | str] = []
  altered: list[episodes.Examples] = []

  def adapt(params: Params, support: episodes.Examples) -> Params:
    own = jax.tree.leaves(support)

    def injected(loss: sample_level.Loss) -> sample_level.Gradient:
      def gradient(
          params: Params, examples: episodes.Examples, step: jax.Array | int
      ) -> Params:
        if isinstance(step, jax.core.Tracer):
          requested.append("traced")
        else:
          requested.append(int(step))
        given = jax.tree.leaves(examples)
        if [*map(id, given)] != [*map(id, own)]:
          altered.append(examples)  # Computed from the support set.
        one = jax.tree.map(
            lambda a: jnp.zeros((1, *a.shape[1:]), a.dtype), support
        )
        ad_checkpoint.checkpoint_name(jnp.zeros(()), _MARK)
        with jax.disable_jit(False):  # The network's own loops stay loops.
          return jax.grad(loss)(params, one, step)

      return gradient

    return learner.adapt(params, support, inner_gradient=injected)

  # Not compiled: a compiled loop would request once, however often it runs.
  with jax.disable_jit():
    program = jax.make_jaxpr(adapt)(params, support).jaxpr
  names = [equation.params.get("name") for equation in program.eqns]
  # A mark below the top level is in a loop or branch of the program, which may
  # run any number of times.
  if names.count(_MARK) != len(requested):
    requested.append("an unknown number")
  needed = {*map(id, program.outvars)}
  for equation in reversed(program.eqns):
    if not needed.isdisjoint(map(id, equation.outvars)):
      needed.update(map(id, equation.invars))
  read = program.invars[-len(jax.tree.leaves(support)) :]
  leaks = bool(altered) or not needed.isdisjoint(map(id, read))
  return requested, leaks

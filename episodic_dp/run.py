"""A run is one value: its data, its sampling, its mechanism, its learner.

A preset returns a `Run`, and so does a config file. `Run.replace` changes
fields, `Run.release` is what the accountant and the training step read, and
`Run.build` makes everything that training needs. Each field is checked by its
annotation when a run is made. This module does not import JAX; `Run.build` and
`Run.make_learners` do.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import math
import os
from typing import Any, Literal, TYPE_CHECKING

from episodic_dp import _validate
from episodic_dp import accounting
from episodic_dp import data as data_lib
from episodic_dp import errors
from episodic_dp import options
from episodic_dp import plain
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.output import files
from episodic_dp.output import phases

if TYPE_CHECKING:
  from episodic_dp import learners
  from episodic_dp import training

SCHEMA = 3  # Of config.json, whose fields are those of `Run`.
# The options of generated data and of pools that are sizes, level by level.
_SIZES = (
    "participants", "way", "glyphs", "points", "per_class", "drawings"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
  """The data set.

  Attributes:
    name: cifar_fs, glyphs, mini_imagenet, mnist_writers, omniglot, own_data or
      sinusoid.
    options: options of the data set, such as its seed.
    shape: shape of an example; a run records it.
    dtype: type of the stored examples; a run records it.
    validation_digest: digest of the public validation data; a run records it.
    survey: listed own data (`own_data.load.Survey`), or None.
  """

  name: str = ""
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  shape: tuple[int, ...] | None = None
  dtype: Literal["uint8", "float32"] | None = None
  validation_digest: str | None = None
  survey: Any = dataclasses.field(
      default=None, compare=False, repr=False, metadata={"plain": False}
  )

  @property
  def backbone(self) -> str | None:
    """Return the recorded digest of the backbone of the data, if any."""
    return (self.options.get("backbone") or {}).get("digest")

  @property
  def sizes(self) -> tuple[int, ...]:
    """Return the sizes of the training tree that the options say, or ()."""
    if not self.options.get("participants"):
      return ()
    return tuple(self.options[k] for k in _SIZES if k in self.options)

  def load(
      self,
      *,
      data_dir: str | os.PathLike[str] | None = None,
      download: bool = False,
  ) -> data_lib.Splits:
    """Load the data set by `data.load`; own data are not listed again."""
    data_lib.read_options(self.name, self.options)  # Names the fields.
    return data_lib.load(
        self.name,
        data_dir=data_dir,
        download=download,
        surveyed=self.survey,
        **self.options,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """A training run, described; every field is checked on construction.

  Attributes:
    steps: number of training steps.
    plan: sampling of the units, and the tasks that the sampled examples form.
    mechanism: clipping and noise of a step.
    delta: δ of the guarantees, above 0 and below 1; None for the largest power
      of ten below 1 / (10 N), for N units of the privacy unit.
    hierarchy: tree of the training data; own data fill it in.
    privacy_unit: level of the displayed ε; None for the primary level.
    seed: public seed of the initial parameters.
    private_seed: seed of the sampling and the noise; None for a secret key. A
      fixed seed makes a run reproducible and its guarantee void for anyone who
      knows it.
    checkpoint_every: number of steps between checkpoints.
    private_diagnostics: whether the training loss and other metrics, which no
      guarantee covers, are recorded in WORKDIR/private.
    data: data set.
    model: network.
    learner: learner.
    optimizer: outer optimizer and its schedule.
    augmentation: random changes of training images.
    evaluation: validation and test tasks.
    compute: placement of a step on devices.
    fine_tuning: training of a new head for test tasks, with
      learner.name=supervised.

  Raises:
    PlanError: a field is wrong; a section may be given as a mapping.

  Examples:
    >>> from episodic_dp.config.presets import glyphs
    >>> run = glyphs.glyphs(width=16).replace({"mechanism.clip_norm": 0.25})
    >>> run.calibrated(epsilon=1.0).mechanism.noise_multiplier
    1.0763
  """

  steps: plain.Count
  plan: plan_lib.SamplingPlan
  mechanism: plan_lib.Mechanism
  delta: plain.Fraction | None = None
  hierarchy: plan_lib.Hierarchy | None = None
  privacy_unit: str | None = None
  seed: int = 0
  private_seed: int | None = None
  checkpoint_every: plain.Count = 25
  private_diagnostics: bool = False
  data: Data = Data()
  model: options.Network = options.Network()
  learner: options.LearnerOptions = options.LearnerOptions()
  optimizer: options.Optimizer = options.Optimizer()
  augmentation: options.Augmentation = options.Augmentation()
  evaluation: options.Evaluation = options.Evaluation()
  compute: options.Placement = options.Placement()
  fine_tuning: options.FineTuningOptions = options.FineTuningOptions()

  def __post_init__(self) -> None:
    for name, value in plain.read_fields(self, name="config").items():
      object.__setattr__(self, name, value)
    tree = self.hierarchy
    if tree is not None and (tree.names or tree.leaf_rows is not None):
      # A run knows the sizes of its data, not their rows.
      tree = dataclasses.replace(tree, names=None, leaf_rows=None)
      object.__setattr__(self, "hierarchy", tree)

  # As plain data --------------------------------------------------------------

  @classmethod
  def parse(cls, source: Any) -> "Run":
    """Read a run.

    Args:
      source: a run; or a mapping of its fields, such as the content of a
        config.json of 2.0 or later, or an object with `to_dict`.

    Raises:
      PlanError: a field is missing, unknown or wrong.
      RunError: a later version wrote it.
    """
    if isinstance(source, cls):
      return source
    if hasattr(source, "to_dict"):
      source = source.to_dict()
    if isinstance(source, Mapping):
      source = _upgraded(source)
    return plain.from_plain(cls, source, name="config", partial=True)

  @classmethod
  def read(
      cls,
      workdir: str | os.PathLike[str],
      *,
      data_dir: str | os.PathLike[str] | None = None,
  ) -> "Run":
    """Read the run of a work directory, which can be built.

    Args:
      workdir: folder of a run.
      data_dir: own data, which are listed for a run without a hierarchy.

    Raises:
      RunError: there is no run, or its config.json is damaged.
      PlanError, UnsoundPlanError: its config.json was changed.
    """
    # Lazy import: the package of the work directory needs JAX.
    from episodic_dp.training import workdir as workdir_lib

    run = cls.parse(workdir_lib.read_config(workdir)).resolved(data_dir)
    run.check_complete()
    return run

  def as_json(self) -> dict[str, Any]:
    """Return every field as plain data for JSON; infinity is "inf"."""
    return {"schema": SCHEMA, **plain.to_plain(self)}

  # Changes --------------------------------------------------------------------

  def replace(self, changes: Mapping[str, Any]) -> "Run":
    """Return the run with other values of some fields.

    Args:
      changes: name -> value, such as {"evaluation.test_tasks": 60}.

    Raises:
      PlanError: a field is unknown or wrong.
    """
    return plain.with_changes(self, changes, name="config")

  def resolved(
      self, data_dir: str | os.PathLike[str] | None = None
  ) -> "Run":
    """Return the run with its hierarchy and delta, and check its plan.

    Args:
      data_dir: own data, which are listed if the run has no hierarchy; no image
        is decoded.

    Raises:
      PlanError: the parts contradict one another, or the data.
      UnsoundPlanError: no proof covers the plan.
      FileNotFoundError, DataError: own data cannot be listed.
    """
    data_lib.check_data_dir(self.data.name, data_dir)
    run = self
    if self.data.shape is None:  # Not built before.
      run = _recorded(run)
    if self.hierarchy is None and self.data.name == "own_data":
      run = _listed(run, data_dir)
    hierarchy = run.release.hierarchy
    sizes, regular = run.data.sizes, hierarchy.sizes
    # Products, since single examples have one level.
    if sizes and regular and math.prod(sizes) != math.prod(regular):
      raise errors.PlanError(
          f"config.data.options have the sizes {sizes} and"
          f" config.hierarchy.sizes {regular}: give both, as"
          f' --config.hierarchy.sizes="{sizes}", or say it once, to the preset,'
          f" as --config={run.data.name}:participants={sizes[0]}"
      )
    units = hierarchy.num_units(hierarchy.level_index(run.level))
    if run.delta is not None:
      return run
    return run.replace({"delta": report.usual_delta(units)})

  def calibrated(
      self,
      *,
      epsilon: float,
      level: str | None = None,
      neighbours: report.Relation = "add-or-remove",
  ) -> "Run":
    """Return the run with the least noise that spends a target epsilon.

    Args:
      epsilon: the target, above 0.
      level: the level of the guarantee; None for `level`.
      neighbours: the relation of the guarantee.

    Raises:
      PlanError: a value is out of range, or epsilon cannot be reached.
      UnsoundPlanError: the level has no guarantee.
    """
    run = self.resolved()
    assert run.delta is not None  # `resolved` computed it.
    found = accounting.calibrate(
        run.release, steps=run.steps, epsilon=epsilon, delta=run.delta,
        level=level or run.level, neighbours=neighbours,
    )
    noise = five_digits(found.noise_multiplier, math.ceil)
    return run.replace({"mechanism.noise_multiplier": noise})

  # What follows from the fields -----------------------------------------------

  @functools.cached_property
  def release(self) -> plan_lib.Release:
    """Return the description of a private step.

    Raises:
      PlanError: the run has no hierarchy.
      UnsoundPlanError: no proof covers it.
    """
    if self.hierarchy is None:
      raise errors.PlanError(
          "config.hierarchy is missing: give levels and sizes, such as"
          " levels=('class', 'drawing') and sizes=(1150, 20)"
      )
    return plan_lib.Release(self.hierarchy, self.plan, self.mechanism)

  @property
  def level(self) -> str:
    """Return the privacy unit: the level whose epsilon is shown."""
    return self.privacy_unit or self.release.levels[0]

  @property
  def way(self) -> int:
    """Return the number of classes of a validation or test task.

    A metric learner can be trained on tasks of another number.

    Raises:
      PlanError: the run does not state it, or states two values.
    """
    episode = self.plan.episode
    trained = episode.way if episode is not None else None
    way = self.evaluation.way or trained
    metric = self.learner.adaptation == options.CLOSED_FORM
    if way is None or not (metric or trained in (way, None)):
      raise _validate.refusal(
          "config.evaluation.way", self.evaluation.way,
          f"the classes of a task (config.plan.episode.way={trained})",
      )
    return way

  @property
  def task(self) -> dict[str, Any]:
    """Return the arguments of `plan.validation.task_plan` for a test task."""
    episode = self.plan.episode
    return dict(
        way=self.way,
        shot=self.evaluation.shot,
        query=self.evaluation.query,
        classes=episode.classes if episode is not None else None,
    )

  @property
  def outputs(self) -> int | None:
    """Return the outputs of the network; None for features without a head."""
    network, learner = self.model, self.learner
    flexible = network.is_own or network.name == "mlp"
    if network.outputs is not None and (
        flexible or learner.name == options.SUPERVISED
    ):
      return network.outputs
    if learner.adaptation == options.CLOSED_FORM:
      if network.name == "mlp":
        return network.widths[-1]
      return None
    return self.way

  def check_complete(self) -> None:
    """Refuse a run that cannot be trained, before any data are read.

    Raises:
      PlanError: names the field.
    """
    name, way = self.learner.name, self.way
    if (self.plan.episode is None) != (name == options.SUPERVISED):
      raise _validate.refusal(
          "config.learner.name", name,
          "supervised, which learns single examples, without"
          " config.plan.episode, and a learner that learns from tasks with it",
      )
    if way == 1 and self.learner.adaptation != options.STEPS:
      raise _validate.refusal(
          "config.learner.name", name,
          "maml or another with gradient steps for regression (way=1)",
      )
    if name == options.SUPERVISED and self.model.outputs is None:
      raise errors.PlanError(
          "config.model.outputs is missing: set it to the number of training"
          " classes, which learner.name=supervised separates"
      )
    if self.model.start is None and self.model.trained != "all":
      raise _validate.refusal(
          "config.model.trained", self.model.trained,
          "all without public weights (config.model.start)",
      )
    model = self.model
    ignored = model.is_own or self.outputs and model.name != "features"
    # The start that sets it does so for every learner.
    if ignored and model.cosine and model.start != options.COSINE:
      raise _validate.refusal(
          "config.model.cosine", True, f"False for {model.name} with {name}: it"
          " is for protonet and ridge on conv4, resnet12, conv1d or features",
      )
    if self.optimizer.warm_up >= self.steps:
      raise _validate.refusal(
          "config.optimizer.warm_up", self.optimizer.warm_up,
          f"less than {self.steps} steps",
      )

  # What trains ----------------------------------------------------------------

  def build(
      self,
      *,
      data_dir: str | os.PathLike[str] | None = None,
      download: bool = False,
      splits: data_lib.Splits | None = None,
      train: data_lib.ArrayDataset | None = None,
      evaluator: "training.Evaluator | None" = None,
  ) -> "training.TrainingSpec":
    """Build what trains: data, network, learner, optimizer and release.

    The accountant reads the release of the same run: the sampled plan is the
    accounted plan. The data are loaded separately, and data with another
    hierarchy are refused.

    Args:
      data_dir: folder of the data sets that are not built in, or own data.
      download: whether to fetch files that data_dir lacks.
      splits: loaded data; None loads them.
      train: training data only, for a run without validation.
      evaluator: evaluator of an equal learner, which saves a compilation.

    Raises:
      PlanError, UnsoundPlanError, RunError, DataError, FileNotFoundError: one
        sentence with the remedy.
    """
    # Lazy imports, here and below: a run is accounted for without JAX.
    from episodic_dp import private
    from episodic_dp import training
    from episodic_dp.private import state as state_lib
    from episodic_dp.training import resume

    run = self.resolved(data_dir)
    run.check_complete()
    tasks, public, validated, digest = run.evaluation, None, None, None
    if train is None:
      if splits is None:
        splits = run.data.load(data_dir=data_dir, download=download)
      train, public = splits.train, splits.validation
      digest = resume.data_digest(public)
      validated = training.sample_tasks(
          public, count=tasks.validation_tasks, seed=tasks.seed, **run.task
      )
    if run.plan.episode is None:
      train = data_lib.as_examples(train)
    train = train.with_copies(run.release.hierarchy)
    mesh = training.make_mesh(run.compute.devices)
    compute = private.Compute(
        mesh=mesh if mesh.size > 1 else None,
        diagnostics=run.private_diagnostics,
        noise_terms=run.compute.noise_terms,
    )
    if run.compute.microbatch_size is not None:
      compute = dataclasses.replace(
          compute, microbatch_size=run.compute.microbatch_size
      )
    learner, evaluated = run.make_learners(train.image_shape, public)
    # What later commands read, from any folder.
    start = run.model.start
    if start is not None and start not in options.STARTS.values():
      start = str(files.path_of(start).absolute())
    recorded = run.replace({
        "model.start": start,
        "model.start_digest": learner.model.start,
        "data.shape": train.image_shape,
        "data.dtype": train.images.dtype.name,
        "data.validation_digest": digest,
    })
    assert run.delta is not None  # `resolved` computed it.
    return training.TrainingSpec(
        config=recorded.as_json(),
        train=dataclasses.replace(train, resident=run.compute.resident),
        validation=validated,
        release=run.release,
        learner=learner,
        optimizer=state_lib.make_optimizer(run.optimizer, run.steps),
        steps=run.steps,
        privacy_unit=run.privacy_unit,
        delta=run.delta,
        seed=run.seed,
        private_seed=run.private_seed,
        compute=compute,
        evaluate_every=tasks.every,
        checkpoint_every=run.checkpoint_every,
        evaluator=evaluator or training.Evaluator(evaluated),
    )

  def make_learners(
      self,
      image_shape: tuple[int, ...],
      validation: data_lib.Dataset | None,
  ) -> "tuple[learners.Learner, learners.Learner]":
    """Build the learner of the training tasks and that of the test tasks.

    The second is the first, or has another number of classes; for a learner of
    examples it is fine-tuning with a new head for every task. A metric
    learner's network with batch normalisation has public examples.

    Args:
      image_shape: shape of an example.
      validation: public data of the run; None for generated images.
    """
    from episodic_dp.data import public
    from episodic_dp.learners import naming
    from episodic_dp.models import builder

    if self.data.shape not in (None, image_shape):
      raise errors.DataError(
          f"the data have examples of shape {image_shape}, and those of the run"
          f" {self.data.shape}: give the data of the run"
      )
    network = functools.partial(
        builder.build,
        self.model,
        input_shape=image_shape,
        augmentation=self.augmentation,
    )
    model = network(outputs=self.outputs)
    closed = self.learner.adaptation == options.CLOSED_FORM
    model = model._replace(backbone=self.data.backbone)
    if model.moments is not None and closed:
      model = model._replace(public=public.examples(validation, image_shape))
    tested = naming.make_learner(self.learner, model, way=self.way)
    episode = self.plan.episode
    if episode is None:
      return tested, naming.make_fine_tuning(
          network(outputs=self.way), self.fine_tuning
      )
    if episode.way == self.way:
      return tested, tested
    learner = naming.make_learner(self.learner, model, way=episode.way)
    return learner, tested


def five_digits(value: float, round_to: Callable[[float], int]) -> float:
  """Round to five significant digits, to the side that costs no more.

  Args:
    value: a number above 0.
    round_to: `math.ceil` or `math.floor`.
  """
  scale = 10.0 ** (4 - math.floor(math.log10(value)))
  return round_to(value * scale) / scale


def _upgraded(source: Mapping[str, Any]) -> dict[str, Any]:
  """Return the fields of a config.json, also of one that 2.x wrote.

  Version 2 wrote no schema, the episode next to the plan, and the rank of a
  network.
  """
  found = dict(source)
  schema = found.pop("schema", SCHEMA)
  if schema != SCHEMA:
    raise errors.RunError(
        f"the config has schema {errors.shown(schema)} and this version reads"
        f" schema {SCHEMA}: use the version of episodic_dp that wrote it"
    )
  plan = found.get("plan")
  if "episode" in found and isinstance(plan, Mapping):
    found["plan"] = {**plan, "episode": found.pop("episode")}
  if "model" in found:
    found["model"] = options.upgraded_network(found["model"])
  return found


def _recorded(run: Run) -> Run:
  """Return a run with the path and the digest of its backbone, if any."""
  if not run.data.options.get("backbone"):
    return run
  chosen = data_lib.read_options(run.data.name, run.data.options)
  return run.replace({
      "data.options.backbone": plain.to_plain(chosen.backbone.recorded())
  })


def _listed(run: Run, data_dir: str | os.PathLike[str] | None) -> Run:
  """Return a run on own data with their tree and, if any fits, a start."""
  # Lazy import: other runs are accounted for without Pillow.
  from episodic_dp.data.own_data import load as own_data

  chosen = data_lib.read_options("own_data", run.data.options)
  with phases.phase("listing the data"):
    survey = own_data.survey(data_dir, chosen)
  return dataclasses.replace(
      run,
      data=dataclasses.replace(run.data, survey=survey),
      hierarchy=own_data.training_tree(
          survey, run.plan, run.task, run.privacy_unit
      ),
      model=run.model.with_start(survey.channels),
  )

"""From a ConfigDict to the objects of the library.

The plan is built by `describe`, which the accountant's command line uses too:
what is accounted is what is sampled. Here the data are loaded beside it, and a
hierarchy that differs from the one described is refused.
"""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import math
import pathlib
from typing import Any, TypeAlias

import ml_collections
import optax

from episodic_dp import data
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp import training
from episodic_dp.config import describe
from episodic_dp.config import own_data
from episodic_dp.training import errors
from episodic_dp.training import evaluation
from episodic_dp.training import workdir as workdir_lib

Config: TypeAlias = ml_collections.ConfigDict


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
  """What a config describes: a run, and the data to test it on."""

  spec: training.TrainingSpec
  splits: data.Splits
  config: Config


def build(
    config: Config,
    *,
    data_dir: str | None = None,
    download: bool = False,
    splits: data.Splits | None = None,
    evaluator: training.Evaluator | None = None,
) -> Experiment:
  """Loads the data and builds everything that a run needs.

  Args:
    config: as the files of episodic_dp/config/presets/ return it.
    data_dir: folder of the data sets that are not built in, or own data.
    download: fetch what data_dir does not have.
    splits: the data, where they are loaded already.
    evaluator: of an equal learner, so that it is compiled once for both.

  Raises:
    PlanError, UnsoundPlanError, RunError, ValueError, FileNotFoundError: one
      sentence with the remedy.
  """
  config = own_data.with_hierarchy(config, data_dir, evaluated=True)
  release = describe.describe(config)
  hierarchy, plan = release.hierarchy, release.plan
  check_learner(config)
  if plan.episode is None and hierarchy.depth > 1:
    raise errors.RunError(
        f"config.hierarchy has the levels {hierarchy.levels} and there is no"
        " episode: every example is a unit of its own then, so give one level,"
        f" levels=({hierarchy.levels[-1]!r},) and sizes="
        f"({hierarchy.num_leaves},), and one stage"
    )
  # The budget needs no data: a target that cannot be met ends the run here.
  steps = training.planned_steps(
      release,
      steps=config.steps,
      delta=config.delta,
      target_epsilon=config.target_epsilon,
      level=config.target_level,
  )
  splits = splits or load_data(
      config, data_dir=data_dir, download=download
  )
  if plan.episode is None:
    splits = dataclasses.replace(
        splits, train=data.as_examples(splits.train)
    )
  train = with_copies(splits.train, hierarchy)
  check_same_tree(hierarchy, train.hierarchy)
  splits = dataclasses.replace(
      splits,
      train=dataclasses.replace(
          train, resident=config.compute.get("resident", True)
      ),
  )
  learner = make_learner(config, splits.train.image_shape)
  tested = make_tested(config, learner, splits.train.image_shape)
  size = config.compute.microbatch_size
  spec = training.TrainingSpec(
      train=splits.train,
      validation=draw_tasks(config, splits.validation, test=False),
      release=release,
      learner=learner,
      optimizer=make_optimizer(config, steps),
      steps=steps,
      asked_steps=config.steps,
      delta=config.delta,
      seed=config.seed,
      private_seed=config.private_seed,
      compute=private.Compute(
          diagnostics=bool(config.private_diagnostics),
          noise_terms=config.compute.get("noise_terms") or 1,
          **({} if size is None else {"microbatch_size": size}),
      ),
      devices=config.compute.get("devices"),
      evaluate_every=config.evaluation.every,
      checkpoint_every=config.checkpoint_every,
      evaluator=evaluator or training.Evaluator(tested),
      config=as_json(config),
  )
  return Experiment(spec=spec, splits=splits, config=config)


def load_data(
    config: Config, *, data_dir: str | None, download: bool = False
) -> data.Splits:
  """The splits that `config.data` names."""
  return data.load(
      config.data.name,
      data_dir=data_dir,
      download=download,
      **config.data.options.to_dict(),
  )


def check_learner(config: Config) -> None:
  """Refuses a learner of tasks without any, and one of examples with some.

  Raises:
    RunError, PlanError: one sentence.
  """
  name, episode = _learner_name(config), config.get("episode")
  if episode is None and name != _SUPERVISED:
    raise errors.RunError(
        f"config.episode is missing and learner.name={name!r} learns from"
        " tasks: set way, shot and query, or learner.name=supervised"
        " (episodic_dp/config/presets/glyphs_supervised.py shows the rest)"
    )
  if name == _SUPERVISED:
    if episode is not None:
      raise errors.RunError(
          "learner.name='supervised' learns single examples and config.episode"
          " asks for tasks: leave the episode out, or use another learner"
      )
    describe.way_of(config)
    _fine_tuning_options(config)


def check_same_tree(
    described: plan_lib.Hierarchy, loaded: plan_lib.Hierarchy
) -> None:
  """Refuses data whose sizes differ from those that are accounted."""
  if not described.same_tree(loaded):
    raise errors.RunError(
        f"the config describes {described} and the data are {loaded}: the"
        " guarantee would be of another sampler; make config.hierarchy and"
        " config.data.options agree"
    )


def with_copies(
    train: data.ArrayDataset, described: plan_lib.Hierarchy
) -> data.ArrayDataset:
  """The data with the counts of copies that the config states, once counted.

  Raises:
    PlanError: a record recurs more often than is stated.
    RunError: the data cannot be counted.
  """
  if described.most_copies is None:
    return train
  if train.count_copies is None:
    raise errors.RunError(
        f"most_copies {described.most_copies} cannot be checked: the data"
        f" '{train.name}' are no synthetic participants; leave it out"
    )
  found = train.count_copies()
  for level, stated in zip(described.levels, described.most_copies):
    if 0 < stated < found.get(level, 1):
      raise plan_lib.PlanError(
          f"most_copies {stated} of level '{level}' is too small: one {level}"
          f" is held by {found[level]} units of level"
          f" '{described.levels[0]}'; state {found[level]}"
      )
  counted = dataclasses.replace(
      train.hierarchy, most_copies=described.most_copies
  )
  return dataclasses.replace(train, hierarchy=counted)


# Their networks end in features: the rest is a closed form.
HEADLESS = ("protonet", "ridge")
_SUPERVISED = "supervised"
# Which of the pieces of MAML++ a learner takes.
_SWITCHES: dict[str, tuple[str, ...]] = {
    "maml": ("learned_rates", "per_step_norm", "multi_step_loss"),
    "anil": ("learned_rates", "per_step_norm", "multi_step_loss"),
    "meta_sgd": ("per_step_norm", "multi_step_loss"),
    "reptile": (),
    "protonet": (),
    "ridge": (),
    _SUPERVISED: (),
}
_OPTIMIZERS = {"adam": optax.adam, "sgd": optax.sgd}


def _learner_name(config: Config) -> str:
  return config.learner.get("name", "maml")


def make_model(
    config: Config,
    image_shape: tuple[int, int, int],
    *,
    way: int | None = None,
) -> models.Model:
  """The network of `config.model.name`: conv4, or mlp with `widths`.

  It has `way` logits; for None what the config's learner needs: a logit for
  every class of a task, the features alone for a closed form, or for supervised
  learning `config.model.outputs`, the number of training classes. An mlp gives
  `config.model.outputs` numbers wherever that is set and `way` is not.
  """
  options = config.model
  name, learner = options.get("name", "conv4"), _learner_name(config)
  if name not in ("conv4", "mlp"):
    raise errors.RunError(f"model.name={name!r} must be conv4 or mlp")
  outputs = way
  if way is None:
    if name == "mlp" or learner == _SUPERVISED:
      outputs = options.get("outputs")
    if learner == _SUPERVISED and outputs is None:
      raise errors.RunError(
          "config.model.outputs is missing: set it to the number of training"
          " classes, which learner.name='supervised' tells apart"
      )
    if outputs is None and (name == "mlp" or learner not in HEADLESS):
      outputs = describe.way_of(config)
  if name == "mlp":
    assert outputs is not None
    return models.mlp(outputs, tuple(options.widths), image_shape)
  return models.conv4(
      outputs,
      width=options.width,
      norm=options.norm,
      input_shape=image_shape,
      library=options["library"],
  )


def make_learner(config: Config, image_shape: tuple[int, int, int]) -> Any:
  """The learner that `config.learner` names, on `make_model`.

  `config.learner.name` is one of maml, anil, meta_sgd, reptile, protonet, ridge
  and supervised (for a config without an episode). The first four read
  `inner_steps` and `inner_rate`, the first three also `order` and the switches
  of MAML++: `per_step_norm`, `learned_rates` (not meta_sgd) and
  `multi_step_loss`, the number of outer steps after which the last inner step's
  loss counts alone (0: from the beginning). ridge reads `ridge` and
  `ridge_scale`, their initial values. `config.episode.way` of 1 is regression,
  with squared error, for the first three and reptile.

  Raises:
    RunError: an unknown name, or a switch that the learner does not have.
  """
  options = config.learner
  name = _learner_name(config)
  if name not in _SWITCHES:
    raise errors.RunError(
        f"learner.name={name!r} must be one of {sorted(_SWITCHES)}"
    )
  for switch in ("learned_rates", "per_step_norm", "multi_step_loss"):
    if options.get(switch) and switch not in _SWITCHES[name]:
      raise errors.RunError(
          f"learner.{switch}={options[switch]} is not read by"
          f" learner.name={name!r}: leave it out"
      )
  way = describe.way_of(config)
  if way == 1 and name in (*HEADLESS, _SUPERVISED):
    raise errors.RunError(
        f"learner.name={name!r} tells classes apart, and way 1 is regression:"
        " use maml"
    )
  model = make_model(config, image_shape)
  if name == _SUPERVISED:
    return learners.Supervised(model)
  if name == "protonet":
    return learners.ProtoNet(model, way=way)
  if name == "ridge":
    return learners.RidgeHead(
        model,
        way=way,
        ridge=options.get("ridge", 1.0),
        scale=options.get("ridge_scale", 10.0),
    )
  inner: dict[str, Any] = dict(
      inner_steps=options.inner_steps, inner_rate=options.inner_rate
  )
  if way == 1:
    inner["task_loss"] = learners.squared_error
  if name == "reptile":
    return learners.Reptile(model, **inner)
  makers: dict[str, type[learners.MAML]] = {
      "maml": learners.MAML,
      "anil": learners.ANIL,
      "meta_sgd": learners.MetaSGD,
  }
  moving = options.get("multi_step_loss", 0)
  return makers[name](
      model,
      **inner,
      order=options.order,
      learned_rates=bool(options.get("learned_rates", False)),
      per_step_norm=bool(options.get("per_step_norm", False)),
      loss_weights=(
          learners.annealed(options.inner_steps, moving) if moving else None
      ),
  )


def make_tested(
    config: Config,
    learner: learners.Learner,
    image_shape: tuple[int, int, int],
) -> learners.Learner:
  """What validation and test tasks are given to.

  The learner itself; or, where it adapts to nothing, fine-tuning with a head of
  its own for every task.
  """
  if _learner_name(config) != _SUPERVISED:
    return learner
  way = describe.way_of(config)
  return make_fine_tuning(
      make_model(config, image_shape, way=way), **_fine_tuning_options(config)
  )


def make_fine_tuning(
    model: models.Model,
    *,
    steps: int = 30,
    rate: float = 0.1,
    body: bool = False,
    optimizer: str = "sgd",
    fresh_head: bool = True,
) -> learners.FineTuning:
  """Fine-tuning as `config.fine_tuning` describes it.

  Args:
    model: the network, with as many logits as a task has classes.
    steps: on the support set.
    rate: of these steps.
    body: train the whole network, not the head alone.
    optimizer: sgd or adam.
    fresh_head: begin with a head of zeros.

  Raises:
    RunError: one of them is wrong.
  """
  if optimizer not in _OPTIMIZERS or not rate > 0:
    raise errors.RunError(
        f"fine-tuning by optimizer={optimizer!r} with rate={rate}: choose"
        f" {' or '.join(sorted(_OPTIMIZERS))} and a positive rate"
    )
  if not isinstance(steps, int) or steps < 1:
    raise errors.RunError(
        f"fine-tuning steps={steps!r} must be a whole number of at least 1"
    )
  return learners.FineTuning(
      model,
      inner_steps=steps,
      optimizer=_OPTIMIZERS[optimizer](rate),
      body=body,
      fresh_head=fresh_head,
  )


def _fine_tuning_options(config: Config) -> dict[str, Any]:
  """`config.fine_tuning`, which may be left out."""
  options = dict(config.get("fine_tuning") or {})
  known = ("steps", "rate", "body", "optimizer")
  for name in sorted(set(options) - set(known)):
    raise errors.RunError(
        f"config.fine_tuning.{name} is not read by anything: use"
        f" {', '.join(known)}"
    )
  return options


def make_schedule(config: Config, steps: int) -> optax.Schedule:
  """A cosine from `optimizer.rate` to `final_rate` over the steps."""
  options = config.optimizer
  if not (options.rate > 0 and 0 <= options.final_rate <= options.rate):
    raise errors.RunError(
        f"optimizer.rate={options.rate} and final_rate={options.final_rate}:"
        " the rate must be positive and must not rise"
    )
  return optax.cosine_decay_schedule(
      options.rate, steps, alpha=options.final_rate / options.rate
  )


def make_optimizer(config: Config, steps: int) -> optax.GradientTransformation:
  """Adam or SGD with `make_schedule`."""
  name = config.optimizer.name
  if name not in _OPTIMIZERS:
    raise errors.RunError(
        f"optimizer.name={name!r} must be one of {sorted(_OPTIMIZERS)}"
    )
  return _OPTIMIZERS[name](make_schedule(config, steps))


def draw_tasks(
    config: Config, dataset: data.ArrayDataset, *, test: bool
) -> evaluation.Tasks:
  """The fixed validation or test tasks of the config."""
  options = config.evaluation
  return training.draw(
      dataset,
      way=describe.way_of(config),
      shot=options.shot,
      query=options.query,
      count=options.test_tasks if test else options.validation_tasks,
      seed=options.seed + int(test),
  )


def as_json(config: Config) -> dict[str, Any]:
  """Nested plain values; infinity becomes the string "inf"."""

  def clean(value):
    if isinstance(value, Mapping):
      return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
      return [clean(v) for v in value]
    if isinstance(value, float) and math.isinf(value):
      return "inf"
    return value

  return clean(config.to_dict())


@contextlib.contextmanager
def as_written(workdir: str) -> Iterator[None]:
  """Around what is built of a config that was read, not checked when written.

  Raises:
    RunError: a field is missing, or of a kind that no config has.
  """
  try:
    yield
  except (AttributeError, KeyError, TypeError) as e:
    path = pathlib.Path(workdir) / workdir_lib.CONFIG
    raise errors.RunError(
        f"{path} is not as a run writes it ({str(e)[:100]}): restore the file,"
        " or use the version that wrote it"
    ) from e


def read_config(workdir: str) -> Config:
  """The config of the run in a work directory.

  Raises:
    RunError: there is no run, or its config.json is damaged.
  """

  def restore(value):
    if isinstance(value, dict):
      return {k: restore(v) for k, v in value.items()}
    return math.inf if value == "inf" else value

  return Config(restore(workdir_lib.read_config(workdir)))

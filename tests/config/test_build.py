"""Configs become objects, and the accounted plan is the sampled plan."""

import math

import numpy as np
import pytest

from episodic_dp import data
from episodic_dp import errors
from episodic_dp import options
from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp.config import presets
from episodic_dp.config.presets import omniglot
from episodic_dp.output import files
from episodic_dp.private import state
from episodic_dp.run import Run
from episodic_dp.training import meta_training
from episodic_dp.training import workdir
from tests import plans
from tests.refusals import assert_refused

SMALL = "participants=40,size=16,width=4,steps=5"


def _config(text=SMALL, **changes):
  config = presets.load(f"glyphs:{text}")
  return config.replace({
      "data.options.validation_participants": 4,
      "data.options.test_participants": 4,
      "evaluation.validation_tasks": 4,
  } | {name.replace("__", "."): value for name, value in changes.items()})


@pytest.fixture(scope="module")
def splits():
  return _config().data.load()


def test_the_run_is_that_of_the_config(splits):
  config = _config()
  spec = config.build(splits=splits)
  assert spec.release.plan == config.release.plan
  assert spec.release.mechanism == config.release.mechanism
  recorded = Run.parse(spec.config).data  # What an export reads.
  assert recorded.shape == splits.train.image_shape
  assert recorded.dtype == splits.train.images.dtype
  assert spec.release.hierarchy.same_tree(spec.train.hierarchy)
  assert spec.steps == 5
  assert spec.learner.model.input_shape == (16, 16, 1)
  assert spec.validation.rows.shape[:2] == (4, 5)
  with pytest.raises(plan.PlanError, match="participant .41.*pant .40"):
    _config("participants=41,size=16").build(splits=splits)


@pytest.mark.slow
def test_stated_counts_of_copies_are_checked(splits):
  hierarchy, rows = sampling.synthetic_participants(
      0, participants=50, classes=4, examples_per_class=5, way=2, per_class=2
  )
  train = data.ArrayDataset(
      name="shared", images=np.zeros((20, 4, 4, 1), np.uint8),
      hierarchy=hierarchy, rows=rows, count_copies=rows.most_copies,
  )
  true = rows.most_copies()

  def stating(more=0, **counts):
    first, *others = hierarchy.sizes
    return plans.tree(
        hierarchy.levels, first + more, *others, copies=True,
        most_copies=counts or None,
    )

  assert train.with_copies(stating()) is train
  described = stating(**true | {"image": true["image"] + 1})
  found = train.with_copies(described).hierarchy
  assert found.same_tree(described)
  assert found.most_copies == (1, true["class"], true["image"] + 1)
  only = train.with_copies(stating(image=true["image"])).hierarchy
  assert only.most_copies == (1, 0, true["image"])
  other = stating(more=1, **true)  # The counts do not hide other sizes.
  assert not train.with_copies(other).hierarchy.same_tree(other)
  for level, count in true.items():
    with pytest.raises(plan.PlanError, match=f"'{level}'.*state {count}"):
      train.with_copies(stating(**{level: count - 1}))
  with pytest.raises(plan.PlanError, match="cannot be checked"):
    splits.train.with_copies(stating(image=9))


def test_the_schedule_ends_with_the_run():
  config = _config(SMALL).replace({"optimizer.name": "sgd"})
  optimizer = state.make_optimizer(config.optimizer, config.steps)
  gradient, sizes = np.ones((), np.float32), []
  held = optimizer.init(gradient)
  for _ in range(config.steps + 1):
    update, held = optimizer.update(gradient, held, gradient)
    sizes.append(-float(update))
  rates = config.optimizer.rate, config.optimizer.final_rate
  assert (sizes[0], sizes[-1]) == pytest.approx(rates)


@pytest.mark.parametrize(
    "name", [name for name in options.LEARNERS if name != options.SUPERVISED]
)
def test_options_reach_every_learner(name):
  chosen = dict(
      name=name, order="first", inner_steps=2, ridge=3.0, ridge_scale=2.0
  )
  if name in ("maml", "anil"):
    chosen |= dict(learned_rates=True, multi_step_loss=10)
  config = _config(learner=chosen)
  config.check_complete()
  found, _ = config.make_learners((16, 16, 1), None)
  assert type(found) is options.LEARNERS[name].load()
  assert found.inner_steps in (2, None)
  if name == "ridge":
    assert (found.ridge, found.scale, found.way) == (3.0, 2.0, 5)
    assert found.model.way == 4  # Features, not classes.
  if name == "anil":
    assert found.learned_rates and not found.per_step_norm
    assert found.at_step(0).loss_weights.tolist() == [0.5, 0.5]


def test_data_of_another_shape_are_not_those_of_a_run():
  config = _config(data__shape=(8, 8, 1))
  with pytest.raises(errors.DataError, match=r"16, 1\), .* run \(8, .*: give"):
    config.make_learners((16, 16, 1), None)


@pytest.mark.parametrize("private_", [0, 1])
def test_configs_survive_the_work_directory(private_, tmp_path):
  config = omniglot.omniglot(private=bool(private_))
  files.write_json(tmp_path / workdir.CONFIG, config.as_json())
  again = Run.read(tmp_path)
  assert again.as_json() == config.as_json()
  assert math.isinf(again.release.mechanism.clip_norm) == (not private_)
  assert plan.to_dict(config.release) == plan.to_dict(again.release)
  content = config.as_json() | {"model": {"widht": 3}}
  files.write_json(tmp_path / workdir.CONFIG, content)
  assert_refused(plan.PlanError, "config.model.widht", Run.read, tmp_path)


@pytest.mark.parametrize("download", [False, True])
def test_the_source_of_the_data_reaches_the_loader(monkeypatch, download):
  def load(options, where):
    raise ConnectionError(
        f"{where.data_dir} {where.download} {options.participants}"
    )

  monkeypatch.setattr("episodic_dp.data.omniglot.load", load)
  with pytest.raises(ConnectionError, match=f"here {download} 400000"):
    omniglot.omniglot().build(data_dir="here", download=download)


@pytest.mark.slow  # Each compiles a step and an evaluation.
@pytest.mark.parametrize("name", ["resnet12", "mlp"])
def test_networks_learn_glyphs_privately(name):
  config = _config(
      "participants=60,rate=0.3,size=16,width=4,steps=12",
      data__options__validation_participants=20,
      evaluation__validation_tasks=40, mechanism__noise_multiplier=0.05,
      learner__name="protonet", model__name=name, model__widths=(32,),
      model__outputs=16 if name == "mlp" else None,
  )
  spec = config.build()
  program = meta_training.MetaTraining(spec)
  held = program.init()
  before = spec.evaluator.score([held.params], spec.validation).mean
  for _ in range(12):
    held, _ = program.step(held)
  after = spec.evaluator.score([held.params], spec.validation).mean
  assert after > before + 0.1, (before, after)

"""Evaluation tasks, accuracy and its interval."""

import dataclasses
import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import data
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.models import networks
from episodic_dp.training import evaluation
from tests import fake_learner
from tests import plans
from tests.learners import bank
from tests.stored import through_json

WAY, SHOT, QUERY = 3, 2, 2


def _dataset(levels=3):
  """Row r is an image whose pixels spell r in two bytes."""
  sizes = (6, 4, 5)[3 - levels :]
  rows = int(np.prod(sizes))
  images = np.zeros((rows, 2, 1, 1), np.uint8)
  images[:, 0, 0, 0], images[:, 1, 0, 0] = np.divmod(np.arange(rows), 256)
  names = ("writer", "glyph", "drawing")[3 - levels :]
  hierarchy = plan.Hierarchy.regular(sizes, levels=names)
  return data.ArrayDataset(name="rows", images=images, hierarchy=hierarchy)


def _draw(dataset, seed=0):
  return training.sample_tasks(
      dataset, way=WAY, shot=SHOT, query=QUERY, count=40, seed=seed
  )


@functools.cache
def _tasks(levels=3):
  return _draw(_dataset(levels))


@functools.cache
def _evaluator():
  """Compiled once for each number of tasks at once."""
  return training.Evaluator(_Nearest())


def test_tasks_of_another_seed_compile_nothing(caplog):
  dataset = _dataset()
  _draw(dataset)
  with jax.log_compiles():
    jax.jit(lambda x: x + len(caplog.text))(1.0)
    assert "Compiling" in caplog.text
    caplog.clear()
    _draw(dataset, seed=1)
  assert "Compiling" not in caplog.text


def test_large_images_are_embedded_a_few_at_once():
  seen = []

  def apply(params, images):
    seen.append(len(images))
    return images[:, :4]

  learner = learners.ProtoNet(models.Model(None, apply, False), way=5)
  tasks = dataclasses.replace(
      _tasks(), images=np.zeros((120, 65536), np.float32)
  )
  with pytest.raises(plan.PlanError, match="way=3: .* of the learner"):
    training.Evaluator(learner).outputs({}, tasks)
  assert max(seen) == 33


def test_features_of_any_scale_have_probabilities():
  rng = np.random.default_rng(0)
  images = 1e7 * rng.standard_normal((120, 6), np.float32)
  tasks = dataclasses.replace(_tasks(), images=images)
  network = networks.features(None, True, (6,))
  learner = learners.ProtoNet(network, way=WAY, scale=0.1)
  params = learner.init(jax.random.key(0))
  found, _ = training.Evaluator(learner).outputs(params, tasks)
  np.testing.assert_allclose(found.sum(axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("levels", [2, 3])
def test_tasks_are_distinct_classes_of_one_writer(levels):
  tasks = _tasks(levels)
  assert tasks.rows.shape == (40, WAY, SHOT + QUERY)
  classes = tasks.rows // 5
  assert (classes == classes[:, :, :1]).all()
  for task in tasks.rows:
    assert len(np.unique(task)) == task.size
    assert len(np.unique(task // 5)) == WAY
  if levels == 3:
    writers = tasks.rows // 20
    assert (writers == writers[:, :1, :1]).all()
    assert len(np.unique(writers)) == 6  # Every writer turns up.


def test_tasks_follow_from_the_seed_alone():
  again, other = (_draw(_dataset(), seed=s).rows for s in (0, 1))
  assert np.array_equal(_tasks().rows, again)
  assert not np.array_equal(again, other)


@pytest.mark.parametrize(
    "way, shot, match",
    [(5, 1, "4 of level 'glyph'"), (3, 5, ": sample at most 5, ")],
)
def test_too_few_classes_or_examples_are_refused(way, shot, match):
  with pytest.raises(plan.PlanError, match=match):
    training.sample_tasks(
        _dataset(), way=way, shot=shot, query=1, count=2, seed=0
    )


def test_empty_units_of_public_data_are_left_out():
  whole = _dataset()
  labels = np.arange(whole.hierarchy.num_leaves)
  labels = {"writer": labels // 20, "glyph": labels // 5 % 4}
  units = [(writer, glyph) for writer in range(9) for glyph in range(6)]
  declared = plan.Hierarchy.from_labels(labels, leaf="drawing", units=units)
  with_empty = dataclasses.replace(whole, hierarchy=declared)
  np.testing.assert_array_equal(_draw(with_empty).rows, _tasks().rows)


@dataclasses.dataclass(frozen=True)
class _Nearest(fake_learner.FakeLearner):
  """Names the class of the support image whose row is nearest."""

  certainty: float = 50.0

  def predict(self, params, support, images):
    def row(x):
      x = jnp.round(255 * x)
      return x[:, 0, 0, 0] * 256 + x[:, 1, 0, 0]

    away = jnp.abs(row(images)[:, None] // 5 - row(support.images)[None] // 5)
    named = support.labels[jnp.argmin(away, axis=1)]
    return params * self.certainty * jax.nn.one_hot(named, WAY)


def _params(*values):
  return [np.float32(value) for value in values]


def test_a_right_and_a_wrong_model():
  evaluator = _evaluator()
  tasks = _tasks()
  right = evaluator.score(_params(1.0), tasks)
  wrong = evaluator.score(_params(-1.0), tasks)
  assert (right.mean, right.high, right.tasks) == (1, 1, 40)
  # Forty answers that are all right: Wilson's interval for 40 of 40.
  assert right.low == pytest.approx(40 / (40 + 1.96**2))
  assert (wrong.mean, wrong.low) == (0, 0)
  assert tasks.chance == 1 / WAY
  # NaN is largest at class 0.
  assert evaluator.score(_params(np.nan), tasks).mean == 0


def test_ensemble_averages_probabilities():
  evaluator = _evaluator()
  tasks = _tasks()
  # The sure member is right; two that err are only a little sure: a vote would
  # err, and so would no average of logits.
  members = _params(1.0, -0.01, -0.01)
  assert evaluator.score(members, tasks).mean == 1
  assert evaluator.score(members[1:], tasks).mean == 0
  outputs, labels = evaluator.outputs(np.float32(1), tasks)
  assert outputs.shape == (40, WAY * QUERY, WAY)
  assert labels.shape == (40, WAY * QUERY)
  np.testing.assert_allclose(outputs.sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 19])
def test_every_task_is_measured_once_whatever_the_chunks(count):
  evaluator = _evaluator()
  whole, all_labels = evaluator.outputs(np.float32(1), _tasks())
  part = dataclasses.replace(
      _tasks(), rows=_tasks().rows[:count], keys=_tasks().keys[:count]
  )
  outputs, labels = evaluator.outputs(np.float32(1), part)
  np.testing.assert_allclose(outputs, whole[:count], rtol=1e-5, atol=1e-7)
  assert np.array_equal(labels, all_labels[:count])
  assert (outputs.argmax(-1) == labels).all()


def test_an_interval_can_be_computed_again_from_what_is_stored():
  evaluator = _evaluator()
  measured = evaluator.score(_params(0.5, -0.01), _tasks())
  counts = np.random.default_rng(0).integers(0, 76, 600)
  errors = np.linspace(0.0, 3.0, 50)
  for score, kind in (
      (measured, evaluation.Accuracy),
      (evaluation.interval(counts / 75), evaluation.Accuracy),
      (
          evaluation.interval(errors, evaluation.SquaredError),
          evaluation.SquaredError,
      ),
  ):
    stored = through_json(dataclasses.asdict(score))
    again = evaluation.interval(
        evaluation.decode_scores(stored["per_task"]), kind
    )
    assert again.tasks == score.tasks
    assert (again.mean, again.low, again.high) == pytest.approx(
        (score.mean, score.low, score.high), abs=1e-7
    )
    assert len(stored["per_task"]) < 2000


def test_interval_is_that_of_the_mean():
  values = np.tile([0.2, 0.4, 0.9, 1.0], 150)
  found = evaluation.interval(values)
  half = 1.96 * values.std(ddof=1) / np.sqrt(600)
  assert found.mean == pytest.approx(0.625)
  assert (found.low, found.high) == pytest.approx(
      (0.625 - half, 0.625 + half), rel=3e-3
  )


@pytest.mark.parametrize(
    "values", [[1, 0], [1], [0], [0.5], [1] * 20, [0.9, 1, 1], [0.1, 0.3]]
)
def test_the_interval_of_accuracies_stays_within_0_and_1(values):
  found = evaluation.interval(np.asarray(values, float))
  assert 0 <= found.low <= found.mean <= found.high <= 1
  assert found.high - found.low > 0.04  # So few tasks say little.


def test_right_and_wrong_answers_have_the_interval_of_wilson():
  """Of 16 right answers of 20: Wilson (1927), by statsmodels."""
  found = evaluation.interval(np.asarray([1.0] * 16 + [0.0] * 4))
  assert (found.low, found.high) == pytest.approx((0.584, 0.919), abs=6e-3)


def test_an_interval_of_errors_has_no_ends():
  found = evaluation.interval(np.asarray([0.0, 40.0]), evaluation.SquaredError)
  assert found.mean == 20 and found.high - found.mean == pytest.approx(39.2)


class _Centred(nn.Module):
  """Subtracts the mean of a call: what is left depends on the others."""

  @nn.compact
  def __call__(self, x):
    x = x.reshape(len(x), -1)
    return nn.Dense(WAY, name="head")(x - x.mean(0, keepdims=True))


def test_queries_are_measured_one_by_one_and_together_on_demand():
  network = models.from_flax(_Centred(), (2, 1, 1))
  learner = learners.MAML(network, inner_steps=1, inner_rate=3.0)
  params, tasks = learner.init(jax.random.key(0)), _tasks()
  evaluator = training.Evaluator(learner)
  alone, _ = evaluator.outputs(params, tasks)
  together, labels = evaluator.outputs(params, tasks, together=True)
  task = sampling.make_episode(
      tasks.keys[3], jnp.asarray(tasks.images[tasks.rows[3]]), tasks.episode
  )
  adapted = learner.adapt(params, task.support)
  support, queries = (part.images for part in (task.support, task.query))
  for found, wanted in (
      (together[3], network.apply(adapted, queries)),
      (alone[3], jnp.stack([
          network.apply(adapted, jnp.concatenate([support, query[None]]))[-1]
          for query in queries
      ])),
  ):
    np.testing.assert_allclose(found, jax.nn.softmax(wanted), atol=1e-5)
  assert np.abs(alone - together).max() > 1e-3
  score = evaluator.score([params], tasks, together=True)
  assert score.mean == (together.argmax(-1) == labels).mean()


@pytest.mark.parametrize("name", ["protonet", "ridge"])
@pytest.mark.parametrize("network", ["conv4", "own", "features"])
def test_an_image_of_many_tasks_is_embedded_once(name, network, monkeypatch):
  size = (len(_tasks().images), *bank.NETWORKS[network])
  images = np.random.default_rng(0).random(size, np.float32)
  tasks = dataclasses.replace(_tasks(), images=images)
  learner = bank.make(name, network, public=network == "conv4")
  params = learner.init(jax.random.key(0))
  monkeypatch.setattr(evaluation, "_BLOCK", 16)
  found, labels = training.Evaluator(learner).outputs(params, tasks)
  given = learner.public_moments(params)
  for i, rows in enumerate(tasks.rows):
    task = sampling.make_episode(tasks.keys[i], images[rows], tasks.episode)
    wanted = learner.normalised(given).predict(
        params, task.support, task.query.images
    )
    np.testing.assert_allclose(found[i], jax.nn.softmax(wanted), atol=1e-5)
    np.testing.assert_array_equal(labels[i], task.query.labels)


def _points():
  """Participant i holds the points of the line y = i x."""
  x = np.linspace(-1, 1, 6, dtype=np.float32)
  slopes = np.arange(8, dtype=np.float32)
  points = np.stack(np.broadcast_arrays(x, slopes[:, None] * x), axis=-1)
  return data.ArrayDataset(
      name="lines",
      images=points.reshape(-1, 1, 1, 2),
      hierarchy=plans.tree("participant point", 8, 6),
      targets=1,
  )


class _Line(fake_learner.FakeLearner):
  """The least-squares slope of the support, and an error of `params`."""

  def predict(self, params, support, points):
    x, y = support.images[:, 0, 0, 0], support.labels[:, 0]
    return (x @ y / (x @ x)) * points[:, 0, 0] + params


def test_regression_is_measured_by_the_squared_error():
  evaluator = training.Evaluator(_Line())
  tasks = training.sample_tasks(
      _points(), way=1, shot=2, query=3, count=30, seed=0
  )
  assert tasks.chance is None and tasks.rows.shape == (30, 1, 5)
  exact, off = (evaluator.score(_params(p), tasks) for p in (0.0, 2.0))
  assert (exact.name, exact.sign) == ("squared_error", -1)
  assert exact.mean < 1e-9 and off.mean == pytest.approx(4)
  assert str(off) == "4.000 ± 0.000"
  # Predictions are averaged: errors of both signs cancel.
  assert evaluator.score(_params(2.0, -2.0), tasks).mean < 1e-9
  mixed = evaluator.score(_params(0.0, 2.0), tasks)
  assert mixed.mean == pytest.approx(1)

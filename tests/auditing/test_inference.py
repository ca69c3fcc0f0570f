"""Membership inference: tasks, losses, curves and what a guarantee allows."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp.auditing import inference
from episodic_dp.data import dataset as dataset_lib

WAY, SIDE = 2, 3
LEVELS = ("participant", "class", "image")
SIZES = {
    "regular": [[3, 3, 3]] * 4,
    "ragged": [[3, 4], [5, 3, 3], [4, 4], [3, 3, 3, 6]],
}
PLAN = plan.SamplingPlan(
    (plan.Poisson(0.2), plan.FixedSize(WAY), plan.FixedSize(3)),
    episode=plan.Episode(way=WAY, shot=1, query=2),
)


def owners(sizes):
  """The participant and the class of every row, in tree order."""
  participant = [i for i, p in enumerate(sizes) for c in p for _ in range(c)]
  class_ = [
      (i, j) for i, p in enumerate(sizes) for j, c in enumerate(p)
      for _ in range(c)
  ]
  return np.asarray(participant), class_


def make_data(kind, shuffled=False):
  sizes = SIZES[kind]
  if kind == "regular":
    hierarchy = plan.Hierarchy.regular((4, 3, 3), levels=LEVELS)
  else:
    hierarchy = plan.Hierarchy.from_sizes(sizes, levels=LEVELS)
  participant, class_ = owners(sizes)
  if shuffled:
    order = np.random.default_rng(2).permutation(participant.size)
    participant = participant[order]
    class_ = [class_[i] for i in order]
    hierarchy = plan.Hierarchy.from_labels(
        {
            "participant": participant,
            "class": np.asarray([j for _, j in class_]),
        },
        leaf="image",
    )
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (participant.size, SIDE, SIDE, 1), np.uint8)
  data = dataset_lib.ArrayDataset(name="x", images=images, hierarchy=hierarchy)
  return data, participant, class_


@pytest.mark.parametrize(
    "kind,shuffled", [("regular", False), ("ragged", False), ("ragged", True)]
)
def test_tasks_belong_to_their_participant(kind, shuffled):
  data, participant, class_ = make_data(kind, shuffled)
  units = np.asarray([3, 0, 1])
  found = inference.draw_tasks(data, PLAN, units, tasks=5, seed=1)
  assert found.rows.shape == (3, 5, WAY, 3) and found.keys.shape == (3, 5)
  for unit, rows in zip(units, found.rows):
    assert (participant[rows] == unit).all()
    for task in rows:
      classes = [{class_[row] for row in of_class} for of_class in task]
      assert [len(c) for c in classes] == [1] * WAY  # A class is one class,
      assert len(set.union(*classes)) == WAY  # and another than the next.
      assert len(set(task.ravel())) == task.size
  assert len({rows.tobytes() for rows in found.rows[0]}) > 1
  again = inference.draw_tasks(data, PLAN, units, tasks=5, seed=1)
  np.testing.assert_array_equal(found.rows, again.rows)
  other = inference.draw_tasks(data, PLAN, units, tasks=5, seed=2)
  assert (found.rows != other.rows).any()


def test_participants_who_cannot_fill_a_task_are_no_targets():
  sizes = [[3, 4], [], [5, 2, 3], [0, 0], [3, 3, 3], [6]]
  hierarchy = plan.Hierarchy.from_sizes(sizes, levels=LEVELS)
  short = dataclasses.replace(PLAN, allow_short_units=True)
  found = inference.participants(hierarchy, short)
  assert found.tolist() == [0, 4]
  images = np.zeros((hierarchy.num_leaves, SIDE, SIDE, 1), np.uint8)
  data = dataset_lib.ArrayDataset(name="x", images=images, hierarchy=hierarchy)
  rows = inference.draw_tasks(data, short, found[::-1], tasks=2, seed=0).rows
  participant, _ = owners(sizes)
  assert (participant[rows[0]] == 4).all() and (participant[rows[1]] == 0).all()
  regular, _, _ = make_data("regular")
  assert inference.participants(regular.hierarchy, PLAN).tolist() == [
      0, 1, 2, 3
  ]


@pytest.fixture(scope="module")
def measured():
  data, _, _ = make_data("ragged")
  learner = learners.MAML(
      models.mlp(WAY, (4,), (SIDE, SIDE, 1)), inner_steps=1, inner_rate=0.5
  )
  params = learner.init(jax.random.key(0))
  tasks = inference.draw_tasks(data, PLAN, np.arange(4), tasks=3, seed=0)
  losses = inference.query_losses(
      learner, params, data, PLAN.episode, tasks, chunk=5
  )
  return data, learner, params, tasks, losses


def test_losses_are_those_of_the_adapted_model(measured):
  """Task by task, whatever the chunks; 12 tasks in chunks of 5."""
  data, learner, params, tasks, losses = measured
  assert losses.shape == (4, 3, 2 * WAY)
  for unit, i in ((0, 0), (3, 2)):
    images = data.images[tasks.rows[unit, i]].astype(np.float32) / 255
    task = sampling.make_episode(
        tasks.keys[unit, i], jnp.asarray(images), PLAN.episode
    )
    adapted = learner.adapt(params, task.support)
    expected = optax.softmax_cross_entropy_with_integer_labels(
        learner.model.apply(adapted, task.query.images), task.query.labels
    )
    np.testing.assert_allclose(losses[unit, i], expected, rtol=1e-5)


def test_scores_are_means_over_tasks_and_over_occurrences(measured):
  _, _, _, tasks, losses = measured
  np.testing.assert_allclose(
      inference.participant_scores(losses),
      [-losses[unit].mean() for unit in range(4)],
  )
  rows, scores = inference.example_scores(losses, tasks, shot=1)
  queries = tasks.rows[..., 1:].reshape(losses.shape)
  assert set(rows) == set(queries.ravel())
  for row, score in zip(rows, scores):
    np.testing.assert_allclose(score, -losses[queries == row].mean())
  assert max((queries == row).sum() for row in rows) > 1

"""The tasks that are shown: exactly those of the sampler, or public ones."""

import jax
import numpy as np
import pytest

from episodic_dp import data
from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp.analysis.inspection import episodes

EPISODE = plan.Episode(way=3, shot=1, query=2)
PLAN = plan.SamplingPlan(
    (plan.FixedSize(2), plan.FixedSize(3), plan.FixedSize(3)), episode=EPISODE
)


def dataset(sizes, levels=("participant", "class", "image"), side=3, **options):
  """Image i is filled with the number i, but for one corner."""
  h = plan.Hierarchy.regular(sizes, levels=levels)
  images = np.broadcast_to(
      np.arange(h.num_leaves, dtype=np.uint8)[:, None, None, None],
      (h.num_leaves, side, side, 1),
  ).copy()
  images[:, 0, 0] = 255
  return data.ArrayDataset(name="tiny", images=images, hierarchy=h, **options)


def leaves(images):
  """The number of each image [..., H, W, C]."""
  return images[..., 1, 1, 0]


def test_training_tasks_are_those_that_the_sampler_draws():
  train = dataset((4, 5, 4))
  found = episodes.training_tasks(train, PLAN, tasks=9, seed=3)
  assert found.private and len(found.tasks) == 2
  assert "2 tasks drawn, the first 2 shown" in found.how
  key = jax.random.fold_in(jax.random.key(3), 0)
  rows, mask = sampling.task_indices(
      *sampling.sample(key, train.hierarchy, PLAN, 0), train.hierarchy, PLAN
  )
  assert bool(mask.all())
  for task, expected in zip(found.tasks, np.asarray(rows)):
    assert task.support.shape == (3, 1, 3, 3, 1)
    assert task.query.shape == (3, 2, 3, 3, 1)
    # Rows are ordered by label, which is a permutation of the drawn classes.
    support = leaves(task.support)[:, 0]
    order = [support.tolist().index(row) for row in expected[:, 0]]
    assert sorted(order) == [0, 1, 2]
    assert (leaves(task.support)[order] == expected[:, :1]).all()
    assert (leaves(task.query)[order] == expected[:, 1:]).all()
    assert len({leaf // 20 for leaf in expected.ravel()}) == 1


def test_as_many_as_are_asked_for_and_the_same_for_a_seed():
  first, again, other = (
      episodes.training_tasks(dataset((4, 5, 4)), PLAN, tasks=1, seed=seed)
      for seed in (0, 0, 1)
  )
  assert len(first.tasks) == 1 and "2 tasks drawn, the first 1" in first.how
  shown = [d.tasks[0].query for d in (first, again, other)]
  assert (shown[0] == shown[1]).all() and (shown[0] != shown[2]).any()


def test_no_task_may_be_drawn(monkeypatch):
  indices = episodes.sampling.task_indices

  def none(*arguments):
    rows, mask = indices(*arguments)
    return rows, mask & False

  monkeypatch.setattr(episodes.sampling, "task_indices", none)
  found = episodes.training_tasks(dataset((4, 5, 4)), PLAN, tasks=2, seed=0)
  assert found.tasks == () and "0 tasks drawn" in found.how


def test_public_tasks_keep_the_stages_where_the_hierarchy_allows():
  found = episodes.public_tasks(
      dataset((4, 5, 4)), PLAN, tasks=2, seed=0, rotate=False
  )
  assert not found.private and len(found.tasks) == 2
  assert "class and example stages of the plan" in found.how
  owners = [
      {int(n) // 20 for n in leaves(t.query).ravel()} for t in found.tasks
  ]
  assert all(len(o) == 1 for o in owners) and owners[0] != owners[1]


@pytest.mark.parametrize(
    "sizes,levels",
    [((18, 4), ("class", "image")), ((9, 2, 4), ("group", "class", "image"))],
)
def test_public_tasks_take_classes_from_everywhere_else(sizes, levels):
  found = episodes.public_tasks(
      dataset(sizes, levels), PLAN, tasks=5, seed=0, rotate=False
  )
  assert len(found.tasks) == 5 and "whole public split" in found.how
  for task in found.tasks:
    classes = np.concatenate(
        [leaves(task.support), leaves(task.query)], axis=1
    ) // 4
    assert (classes == classes[:, :1]).all()
    assert len(set(classes[:, 0].tolist())) == 3


def test_ragged_public_classes_keep_their_rows():
  labels = np.asarray([2, 0, 1, 0, 2, 1, 0, 1, 2, 2])
  units = [0, 1, 2, 3]  # Class 3 is empty, and left out.
  h = plan.Hierarchy.from_labels({"class": labels}, leaf="image", units=units)
  images = np.arange(10, dtype=np.uint8)[:, None, None, None]
  public = data.ArrayDataset(name="own", images=images, hierarchy=h)
  found = episodes.public_tasks(public, PLAN, tasks=4, seed=0, rotate=False)
  for task in found.tasks:
    drawn = np.concatenate([task.support, task.query], axis=1)[..., 0, 0, 0]
    assert (labels[drawn] == labels[drawn[:, :1]]).all()


def test_rotations_of_training_are_shown_on_public_images():
  turned = episodes.public_tasks(
      dataset((18, 4), ("class", "image")), PLAN, tasks=5, seed=0, rotate=True
  )
  assert "90 degrees" in turned.how
  corners = [
      tuple(np.argwhere(image[..., 0] == 255)[0])
      for t in turned.tasks for image in t.support[:, 0]
  ]
  assert len(set(corners)) == 4
  for task in turned.tasks:  # Support and query of a class turn alike.
    for support, query in zip(task.support[:, 0], task.query[:, 1]):
      assert ((support == 255) == (query == 255)).all()


def test_public_data_that_are_too_small_are_told():
  with pytest.raises(plan.PlanError, match="2 units of level 'class'"):
    episodes.public_tasks(
        dataset((2, 4), ("class", "image")), PLAN, tasks=1, seed=0, rotate=False
    )

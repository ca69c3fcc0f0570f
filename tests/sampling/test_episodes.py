"""Tasks of what was drawn, episodes of tasks, participants of functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp.sampling import episodes
from episodic_dp.sampling import numpy_sampler
from episodic_dp.sampling import synthetic
from tests import frequencies
from tests import plans

A = plan.All
KEY = jax.random.key(3)


def _tasks(hierarchy, p, steps=range(1, 2)):
  """Tasks of the sampler without JAX, whose rule of grouping is JAX's too."""
  unit = hierarchy.levels[0] if p.episode.form == "unit" else plan.EPISODE
  release = plans.release(hierarchy, p, unit)
  for step in steps:
    indices, mask = numpy_sampler.sample(bytes(16), release, step)
    yield indices[mask], *numpy_sampler.group_tasks(
        indices, mask, hierarchy, p, np
    )


def _filled_tasks(sizes, stages, episode):
  """The tasks, as many as were drawn: they hold all leaves and no other."""
  levels = ("a", "b", "c", "d")[-len(sizes):]
  hierarchy = plan.Hierarchy.regular(sizes, levels=levels)
  ((leaves, grouped, drawn),) = _tasks(
      hierarchy, plans.sampling(*stages, episode=episode)
  )
  assert grouped.shape[1:] == (episode.way, episode.shot + episode.query)
  assert sorted(grouped[drawn].ravel()) == sorted(leaves)
  assert not grouped[~drawn].any()
  return grouped[drawn], len(drawn)


def test_unit_tasks_of_poisson_participants():
  groups, slots = _filled_tasks(
      (50, 6, 9), (0.2, 3, 4), plan.Episode(3, 1, 3)
  )
  assert 0 < len(groups) < slots
  assert (groups // 54 == groups[:, :1, :1] // 54).all()
  assert (groups // 9 == groups[..., :1] // 9).all()
  assert len(set(groups[:, 0, 0] // 54)) == len(groups)


@pytest.mark.parametrize(
    "sizes,stages,way,units",
    [
        ((40, 9), (12, 3), 4, None),  # Two stages: classes of one pool.
        ((20, 8, 9), (3, 8, 3), 4, 1),  # Two tasks in each unit.
        ((20, 8, 9), (6, 2, 3), 4, 2),  # Two units in each task.
    ],
)
def test_disjoint_tasks(sizes, stages, way, units):
  groups, slots = _filled_tasks(
      sizes, stages, plan.Episode(way, 1, 2, form="disjoint")
  )
  assert len(groups) == slots
  classes = groups // 9
  assert (classes == classes[..., :1]).all()
  assert len(set(classes[..., 0].ravel())) == classes[..., 0].size
  if units:
    assert all(len(set(t[:, 0] // 8)) == units for t in classes)


@pytest.mark.parametrize("form", ["disjoint", "independent", "unit"])
def test_classes_take_their_examples_from_several_units_below(form):
  """Two images of each of three patients, in the support or in the query."""
  sizes = (4, 5, 6, 7)[form != "unit":]
  groups, slots = _filled_tasks(
      sizes,
      ((0.7,) if form == "unit" else ()) + (
          4 if form == "disjoint" else 2, 3, 2
      ),
      plan.Episode(
          2, 2, 4, form=form, classes="b",
          tasks=5 if form == "independent" else None,
      ),
  )
  assert 0 < len(groups) <= slots
  for task in groups:
    diagnoses = task // 42
    assert (diagnoses == diagnoses[:, :1]).all() and len(set(task[:, 0])) == 2
    for row in task // 7:
      support, query = set(row[:2]), set(row[2:])
      assert len(support) == 1 and len(query) == 2 and not support & query


# Episodes ---------------------------------------------------------------------

EPISODE = plan.Episode(way=4, shot=1, query=2)


def _images(dtype=np.uint8, side=3):
  """Every pixel of the 4 x 3 images is different within a class and between."""
  shape = (4, 3, side, side, 1)
  return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def test_support_and_query_share_nothing_and_labels_agree():
  images = _images()
  task = jax.jit(lambda k: sampling.make_episode(k, images, EPISODE))(KEY)
  support, query = task
  assert support.images.dtype == query.images.dtype == jnp.float32
  assert support.labels.dtype == query.labels.dtype == jnp.int32
  np.testing.assert_allclose(support.images, images[:, 0] / 255.0, rtol=1e-6)
  np.testing.assert_allclose(
      query.images, images[:, 1:].reshape(8, 3, 3, 1) / 255.0, rtol=1e-6
  )
  np.testing.assert_array_equal(query.labels, np.repeat(support.labels, 2))


def test_labels_are_uniformly_permuted():
  images = jnp.zeros((4, 3, 1, 1, 1), jnp.uint8)
  keys = jax.random.split(KEY, 20_000)
  labels = jax.jit(
      jax.vmap(
          lambda k: sampling.make_episode(k, images, EPISODE).support.labels
      )
  )(keys)
  frequencies.check_rows(labels, 24)


def test_rotation_turns_whole_classes_by_quarter_turns():
  images = _images()
  keys = jax.random.split(KEY, 400)
  turned = np.asarray(
      jax.jit(jax.vmap(episodes.rotate_classes, (0, None)))(keys, images)
  )
  assert turned.dtype == np.uint8
  turns = np.stack([np.rot90(images, k, axes=(2, 3)) for k in range(4)])
  # [keys, turns, way]: the whole class equals one of its four turns.
  same = (turned[:, None] == turns[None]).all(axis=(3, 4, 5, 6))
  assert (same.sum(axis=1) == 1).all()
  drawn = same.argmax(axis=1)
  frequencies.check_uniform(np.bincount(drawn.ravel(), minlength=4))
  frequencies.check_pairs(drawn[:, 0], drawn[:, 1], 4)


POINTS = plan.Episode(way=1, shot=2, query=3)


def test_points_bring_their_targets_along():
  """Two levels, participant -> point; the last channel is the target."""
  groups, slots = _filled_tasks((20, 9), (0.4, 5), POINTS)
  assert 0 < len(groups) < slots
  assert (groups // 9 == groups[:, :, :1] // 9).all()
  # A leaf's features are (leaf, 2 leaf), its target is -leaf.
  leaves = np.arange(180, dtype=np.float32)
  points = np.stack([leaves, 2 * leaves, -leaves], -1).reshape(-1, 1, 1, 3)
  rows = groups[0]
  task = sampling.make_episode(KEY, points[rows], POINTS, targets=1)
  for part, chosen in zip(task, (rows[0, :2], rows[0, 2:])):
    assert part.images.shape == (len(chosen), 1, 1, 2)
    assert part.labels.dtype == jnp.float32
    np.testing.assert_array_equal(part.images[:, 0, 0, 0], chosen)
    np.testing.assert_array_equal(part.images[:, 0, 0, 1], 2 * chosen)
    np.testing.assert_array_equal(part.labels, -chosen[:, None])


@pytest.mark.parametrize(
    "shape,dtype,episode",
    [
        ((1, 5, 1, 1, 2), np.int32, POINTS),
        ((1, 5, 2, 2, 2), np.float32, POINTS),
        ((2, 5, 1, 1, 2), np.float32, plan.Episode(way=2, shot=2, query=3)),
    ],
)
def test_targets_of_what_is_no_point_are_refused(shape, dtype, episode):
  with pytest.raises(ValueError, match="with 1 targets|int32 have no known"):
    sampling.make_episode(KEY, np.zeros(shape, dtype), episode, targets=1)


# Sizes, stages, sizes of a neighbour, and how many of its leaves, the first
# ones, no filled task can hold.
SHORT = {
    "unit": ((4, 3, 2), (0.7, 3, 2), [[2, 2], *[[2, 2, 2]] * 3], 4),
    "unit, all": ((1, 3, 2), (A(), A(), A()), [[2, 2]], 4),
    "unit, an image": (
        (2, 3, 2), (A(), 3, A()), [[2, 1, 2], [2, 2, 2]], 5
    ),
    "disjoint": (
        (4, 3, 2), (2, 3, 2), [[2, 2], *[[2, 2, 2]] * 3], 4
    ),
    "disjoint, an image": ((9, 2), (6, 2), [1, *[2] * 8], 1),
    "disjoint, a class": ((6, 2), (6, 2), [2] * 5, 0),
    "disjoint, every unit": ((4, 3, 2), (2, 3, 2), [[2, 2]] * 4, 16),
    "independent": ((3, 2), (3, A()), [2, 2], 4),
    "independent, an image": ((4, 2), (3, 2), [1, 2, 2, 2], 1),
}


@pytest.mark.parametrize("name", SHORT)
def test_tasks_that_cannot_be_filled_are_left_out(name):
  sizes, stages, neighbour, unfilled = SHORT[name]
  form = name.split(",")[0]
  tasks = 4 if form == "independent" else None
  episode = plan.Episode(3, 1, 1, form=form, tasks=tasks)
  p = plans.sampling(*stages, episode=episode, allow_short_units=True)
  levels = ("a", "b", "c")[-len(sizes):]
  whole = plan.Hierarchy.regular(sizes, levels=levels)
  short = plans.nested(levels, neighbour)
  lacking, filled = set(range(unfilled)), 0
  for leaves, grouped, drawn in _tasks(short, p, range(12)):
    assert grouped.shape[1:] == (3, 2)
    filled += drawn.sum()
    for task in grouped[drawn]:
      assert len(set(task.ravel())) == 6 and not lacking & set(task.ravel())
    # All else that was drawn is in a task that is not filled.
    rest = set(leaves) - set(grouped[drawn].ravel())
    assert rest <= set(grouped[~drawn].ravel()) | lacking
  assert filled < sum(drawn.sum() for *_, drawn in _tasks(whole, p, range(12)))


# Participants that are computed, not stored -----------------------------------

SIZES = dict(
    participants=400_000, classes=30, examples_per_class=6, way=5, per_class=2
)


@pytest.mark.slow
def test_rows_are_fixed_distinct_and_uniform():
  hierarchy, rows = sampling.synthetic_participants(11, **SIZES)
  assert hierarchy.sizes == (400_000, 5, 2) and hierarchy.copies
  leaf = np.arange(5000 * 10).reshape(5000, 5, 2)
  got = np.asarray(rows(leaf))
  assert got.dtype == np.int32 and got.shape == leaf.shape
  classes, images = got // 6, got % 6
  assert (classes[..., 0] == classes[..., 1]).all() and classes.max() < 30
  assert all(len(set(c)) == 5 for c in classes[..., 0])
  assert (images[..., 0] != images[..., 1]).all()
  # A leaf's row does not depend on what it is asked together with.
  order = np.random.default_rng(0).permutation(leaf.size).reshape(leaf.shape)
  np.testing.assert_array_equal(rows(order), got.ravel()[order])
  # A resumed or repeated run must meet the same participants.
  assert got.ravel()[[0, 1, 10]].tolist() == [66, 70, 163]
  assert int(rows(np.asarray(3_999_999))) == 75
  _, other = sampling.synthetic_participants(12, **SIZES)
  assert (np.asarray(other(leaf)) != got).mean() > 0.9
  frequencies.check_uniform(np.bincount(classes[:, 0, 0], minlength=30))
  # Two different images of a class: 30 ordered pairs.
  frequencies.check_rows(images.reshape(-1, 2), 30)


@pytest.mark.slow
def test_most_copies_are_counted_over_all_participants(monkeypatch):
  sizes = dict(SIZES, participants=700)
  hierarchy, rows = sampling.synthetic_participants(3, **sizes)
  held = np.asarray(rows(jnp.arange(7000))).reshape(700, 10)
  by_image = [sum(image in set(h) for h in held) for image in range(180)]
  by_class = [sum(c in set(h // 6) for h in held) for c in range(30)]
  expected = {"class": max(by_class), "image": max(by_image)}
  assert rows.most_copies() == expected
  monkeypatch.setattr(synthetic, "_CHUNK", 64)  # the last one is not full
  assert rows.most_copies() == expected
  assert hierarchy is rows.hierarchy and hierarchy.most_copies is None


@pytest.mark.parametrize(
    "change,message",
    [
        ({"way": 31}, "way 31 cannot be drawn .* from classes 30"),
        ({"per_class": 7}, "per_class 7 .* from examples_per_class 6"),
        ({"per_class": 0}, "per_class 0"),
        ({"classes": 2**30}, "more than 2\\^31 - 1 rows"),
        ({"participants": 2**31}, "leaves, more than"),
        ({"key_seed": 2**32}, "key_seed=4294967296"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(change, message):
  arguments = {"key_seed": 0, **SIZES, **change}
  with pytest.raises(plan.PlanError, match=message):
    sampling.synthetic_participants(arguments.pop("key_seed"), **arguments)

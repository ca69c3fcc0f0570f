"""The built-in set: deterministic, disjoint, learnable and not trivial."""

import re

import numpy as np
import pytest

from episodic_dp import data
from episodic_dp.data import glyphs

OPTIONS = {
    "participants": 40,
    "validation_participants": 10,
    "test_participants": 50,
}


@pytest.fixture(scope="module")
def splits():
  return data.load("glyphs", **OPTIONS)


def _parts(splits):
  return splits.train, splits.validation, splits.test


def test_shapes_and_hierarchy(splits):
  for dataset, participants in zip(_parts(splits), (40, 10, 50)):
    assert dataset.images.shape == (participants * 8 * 5, 28, 28, 1)
    assert dataset.images.dtype == np.uint8
    assert dataset.hierarchy.sizes == (participants, 8, 5)
    assert dataset.hierarchy.levels == ("participant", "glyph", "drawing")
    assert not dataset.hierarchy.copies
    assert not dataset.rotate


def test_same_options_same_bits(splits):
  again = data.load("glyphs", **OPTIONS)
  for one, other in zip(_parts(splits), _parts(again)):
    np.testing.assert_array_equal(one.images, other.images)


def test_participants_do_not_depend_on_how_many_there_are(splits):
  # 17 is no multiple of the rendering chunk.
  fewer = data.load("glyphs", **(OPTIONS | {"participants": 17}))
  np.testing.assert_array_equal(
      fewer.train.images, splits.train.images[: 17 * 40]
  )
  np.testing.assert_array_equal(fewer.test.images, splits.test.images)


def test_other_seed_other_data(splits):
  other = data.load("glyphs", **(OPTIONS | {"seed": 1}))
  same = (other.test.images == splits.test.images).all((1, 2, 3))
  assert same.mean() < 0.01


def test_no_drawing_occurs_twice(splits):
  drawings = [
      image.tobytes() for d in _parts(splits) for image in d.images
  ]
  assert len(set(drawings)) == len(drawings)


def test_paper_is_white_and_ink_black(splits):
  images = splits.train.images
  assert images.min() == 0 and images.max() == 255
  assert np.median(images) == 255
  # Every drawing shows something and none is a blot.
  dark = (images < 128).mean((1, 2, 3))
  assert dark.min() > 0.01 and dark.max() < 0.5


def test_nearest_neighbour_is_far_from_chance_and_from_perfect(splits):
  images = splits.test.images.reshape(50, 8, 5, -1) / 255.0
  rng = np.random.default_rng(0)
  hits = []
  for _ in range(400):
    chosen = rng.choice(8, 5, replace=False)
    tasks = images[rng.integers(50), chosen]
    pairs = [task[rng.choice(5, 2, replace=False)] for task in tasks]
    support, query = np.stack(pairs, axis=1)
    distance = ((query[:, None] - support) ** 2).sum(-1)
    hits.append((distance.argmin(1) == np.arange(5)).mean())
  assert 0.5 < np.mean(hits) < 0.8  # Chance is 0.2.


def test_drawings_of_a_writer_share_a_hand(splits):
  # The amount of ink varies more between writers than chance would have it.
  ink = (255.0 - splits.test.images).mean((1, 2, 3)).reshape(50, 8, 5).mean(2)
  between = ink.mean(1).var()
  within = ink.var(axis=1, ddof=1).mean() / 8
  assert between > 2 * within


def test_options_change_the_shape():
  small = data.load(
      "glyphs",
      participants=3,
      validation_participants=1,
      test_participants=2,
      glyphs=2,
      drawings=3,
      size=20,
  )
  assert small.train.images.shape == (18, 20, 20, 1)
  assert small.test.hierarchy.sizes == (2, 2, 3)


@pytest.mark.parametrize(
    "option, value",
    [
        ("participants", 0),
        ("test_participants", 2.5),
        ("glyphs", True),
        ("drawings", "5"),
        ("size", 4),
        ("seed", -1),
        ("seed", 2**32),
    ],
)
def test_wrong_options_are_named(option, value):
  with pytest.raises(ValueError, match=re.escape(f"{option}={value!r}")):
    glyphs.load(**{option: value})

"""Examples become rows of one shape, type and public scale, or a sentence."""

import numpy as np
import pytest

from episodic_dp.data.own_data import rows
from episodic_dp.data.own_data.readers.example import Example

DARK = Example(np.full((4, 4, 1), 51, np.uint8), image=True)
DEEP = Example(np.full((4, 4, 1), 0.25, np.float32), image=True)
NUMBERS = Example(np.float32([[1, 2], [3, 4], [5, 6]]), image=False)


def row(first, *others, **options):
  form = rows.form_of(first, "first", rows.options(**options))
  found = [form.row(e, f"other{k}") for k, e in enumerate((first, *others))]
  assert all(f.shape == form.shape and f.dtype == form.dtype for f in found)
  return found[-1]


def test_images_take_size_colour_and_depth():
  assert row(DARK).shape == (28, 28, 1)
  assert row(DARK, size=3, color=True).shape == (3, 3, 3)
  assert row(DEEP).dtype == np.float32
  np.testing.assert_allclose(row(DEEP, DARK, depth=16), 0.2, rtol=1e-6)
  assert (row(DARK, DEEP, depth=8) == 64).all()
  red = Example(np.float32([[[1, 0, 0]]]), image=True)
  np.testing.assert_allclose(row(DEEP, red, size=1), 0.299, rtol=1e-6)


def test_numbers_are_scaled_by_public_options_alone():
  np.testing.assert_array_equal(row(NUMBERS), NUMBERS.values)
  found = row(NUMBERS, offset=1, scale=(2.0, 4.0), clip=(0, 1.5))
  np.testing.assert_array_equal(found, [[0, 0.25], [1, 0.75], [1.5, 1.25]])
  assert (row(DEEP, offset=(0.25,), scale=[0.5]) == 0).all()


@pytest.mark.parametrize(
    "examples,text",
    [
        ((DARK, DEEP), "other1 has more than 8 and first 8 bits.*depth=16"),
        ((DEEP, DARK), "other1 has 8 bits a value and first more.*depth=8"),
        ((DARK, NUMBERS), "other1 holds numbers and first an image"),
        ((NUMBERS, DARK), "other1 holds an image and first numbers"),
        (
            (NUMBERS, Example(NUMBERS.values[:2], image=False)),
            r"other1 has shape \(2, 2\) and first \(3, 2\)",
        ),
    ],
)
def test_an_example_that_differs_is_refused(examples, text):
  with pytest.raises(ValueError, match=text):
    row(*examples)


@pytest.mark.parametrize(
    "example,options,text",
    [
        (NUMBERS, {"size": 3}, "size=3 is of images.*leave --config.data.o"),
        (NUMBERS, {"depth": 8}, "depth=8 is of images"),
        (NUMBERS, {"scale": (1, 2, 3)}, "scale has 3 numbers.*or 2, "),
        (NUMBERS, {"scale": 0}, "scale=0 divides.*--config.data.options.scale"),
        (NUMBERS, {"scale": 1e-45}, "exceeds float32 once it is scaled"),
        (NUMBERS, {"offset": float("nan")}, "offset=nan must be a finite"),
        (NUMBERS, {"offset": "3"}, "offset='3' must be"),
        (NUMBERS, {"offset": ()}, r"offset=\(\) must be"),
        (NUMBERS, {"clip": (1, 0)}, r"clip=\(1, 0\) must be the least"),
        (NUMBERS, {"clip": 3}, "clip=3 must be the least"),
        (DARK, {"scale": 2}, "is an image of 8 bits.*depth=16"),
        (DARK, {"depth": 12}, "depth=12 must be 8 or 16"),
    ],
)
def test_wrong_options_are_named(example, options, text):
  with pytest.raises(ValueError, match=text):
    row(example, **options)

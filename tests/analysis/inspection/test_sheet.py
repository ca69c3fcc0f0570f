"""Contact sheets: their size, and pixels that are whole multiples."""

import io

import numpy as np
from PIL import Image

from episodic_dp.analysis.inspection import sheet
from episodic_dp.analysis.inspection import tasks as tasks_lib

RNG = np.random.default_rng(0)


def pixels(image):
  return np.asarray(image.convert("RGB"))


def drawn(tasks, way=3, shot=1, query=2, shape=(8, 8, 1), **options):
  def images(n):
    return RNG.integers(0, 256, (way, n, *shape)).astype(np.uint8)

  return tasks_lib.TaskSheet(
      tasks=tuple(
          tasks_lib.TaskImages(support=images(shot), query=images(query))
          for _ in range(tasks)
      ),
      source="tiny: made for a test",
      how="",
      private=options.get("private", False),
  )


def opened(data):
  return Image.open(io.BytesIO(data))


def test_images_are_shown_large_enough():
  for side, scale in ((12, 5), (28, 2), (32, 2), (84, 1), (224, 1)):
    assert sheet.scale_of(np.zeros((2, 1, side, side, 3))) == scale


def test_every_image_stands_on_the_sheet_in_its_colours():
  found = drawn(2)
  picture = pixels(opened(sheet.draw(found, "tiny: tasks")))
  scale = sheet.scale_of(found.tasks[0].support)
  for task in found.tasks:
    for image in (*task.support[:, 0], *task.query[:, 1]):
      large = np.repeat(image.repeat(scale, 0).repeat(scale, 1), 3, axis=-1)
      corner = np.argwhere(picture[:, :, 0] == large[0, 0, 0])
      assert any(
          np.array_equal(
              picture[y : y + len(large), x : x + len(large)], large
          )
          for y, x in corner
      )


def test_sizes_grow_with_the_tasks_and_stay_within_a_screen():
  one, six = (opened(sheet.draw(drawn(n), "tiny")).size for n in (1, 6))
  assert six[0] > one[0] and six[1] > one[1] * 0.8
  many = opened(sheet.draw(drawn(20, way=5, shot=5, query=15), "tiny"))
  assert 600 < many.size[0] <= 1536
  # Five of fifteen query images are shown.
  assert sheet.shown(np.zeros((15, 2, 2, 1))).shape[0] == 5


def test_private_sheets_say_so():
  public, private = drawn(1), drawn(1, private=True)
  a, b = (opened(sheet.draw(d, "tiny")).size for d in (public, private))
  assert b[1] > a[1]

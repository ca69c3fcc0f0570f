"""How many images are computed at once, so that what they need stays cached."""


def images_at_once(images: int, rows: int, most: int) -> int:
  """The largest divisor of `images` with at most `most` rows, or 1.

  Args:
    images: how many there are.
    rows: of one image, in the matrix products that are made of it.
    most: rows of a matrix whose product stays in the cache of a core.
  """
  count = max(1, min(images, most // rows))
  while images % count:
    count -= 1
  return count

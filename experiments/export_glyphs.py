"""Writes the built-in glyphs as a folder tree of PNG files, to try own data on.

  python -m experiments.export_glyphs --out=DIR

DIR/writer000/glyph0/drawing0.png and so on: every writer has glyphs of their
own. --out must not exist yet.
"""

from collections.abc import Sequence
import pathlib

from absl import flags
from PIL import Image
import tqdm

from episodic_dp import data
from episodic_dp.cli import app

_OUT = flags.DEFINE_string("out", None, "The folder to make.", required=True)
_WRITERS = flags.DEFINE_integer("writers", 1000, "How many writers.", 1)
_GLYPHS = flags.DEFINE_integer("glyphs", 6, "Glyphs of each writer.", 1)
_DRAWINGS = flags.DEFINE_integer("drawings", 4, "Drawings of each glyph.", 1)
_SIZE = flags.DEFINE_integer("size", 28, "Height and width in pixels.", 12)


def export(
    out: pathlib.Path, *, writers: int, glyphs: int, drawings: int, size: int
) -> int:
  """Writes writers * glyphs * drawings files and returns how many these are.

  Raises:
    ValueError: the folder is there already, or cannot be made.
  """
  try:
    out.mkdir(parents=True)
  except OSError as e:
    raise ValueError(
        f"{out} cannot be made ({e.strerror}): choose a folder that does not"
        " exist yet"
    ) from e
  images = data.load(
      "glyphs",
      participants=writers,
      validation_participants=1,
      test_participants=1,
      glyphs=glyphs,
      drawings=drawings,
      size=size,
  ).train.images
  digits = len(str(writers - 1))
  for row, image in enumerate(tqdm.tqdm(images, unit="image", disable=None)):
    unit, drawing = divmod(row, drawings)
    writer, glyph = divmod(unit, glyphs)
    folder = out / f"writer{writer:0{digits}d}" / f"glyph{glyph}"
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image[..., 0]).save(folder / f"drawing{drawing}.png")
  return len(images)


def main(argv: Sequence[str]) -> None:
  """Writes the PNG files."""
  del argv
  out = pathlib.Path(_OUT.value)
  count = export(
      out,
      writers=_WRITERS.value,
      glyphs=_GLYPHS.value,
      drawings=_DRAWINGS.value,
      size=_SIZE.value,
  )
  print(f"{count} drawings of {_WRITERS.value} writers in {out}")


if __name__ == "__main__":
  app.run(main)

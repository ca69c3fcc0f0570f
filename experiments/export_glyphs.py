"""Write the built-in glyphs as a folder tree of PNG files, to test own data.

  python -m experiments.export_glyphs --out=DIR

The files are DIR/writer000/glyph0/drawing0.png and so on: every writer has
different glyphs. --out must not exist yet.

  python -m experiments.export_glyphs --out=DIR --layout=diagnosis --crossing=2

writes DIR/diagnosis00/patient0000/image0.png and so on, to test classes above
the units whose privacy is kept. Every glyph represents a diagnosis, and two
drawings of it are the images of one patient; with --crossing=2 every patient is
in two diagnoses.
"""

from collections.abc import Sequence
import pathlib

from absl import flags
from PIL import Image
import tqdm

from episodic_dp import data
from episodic_dp.cli import app

_GLYPHS, _DIAGNOSES, _IMAGES = 6, 36, 2

_OUT = flags.DEFINE_string("out", None, "The folder to make.", required=True)
_LAYOUT = flags.DEFINE_enum(
    "layout", "writer", ["writer", "diagnosis"], "The folders' meaning."
)
_WRITERS = flags.DEFINE_integer("writers", 1000, "Number of writers.", 1)
_DRAWINGS = flags.DEFINE_integer("drawings", 4, "Drawings of each glyph.", 1)
_PATIENTS = flags.DEFINE_integer("patients", 120, "Patients of each.", 1)
_CROSSING = flags.DEFINE_integer("crossing", 1, "Diagnoses of a patient.", 1)


def by_writer(row: int) -> str:
  """Return the place of a drawing in the first layout."""
  unit, drawing = divmod(row, _DRAWINGS.value)
  writer, glyph = divmod(unit, _GLYPHS)
  digits = len(str(_WRITERS.value - 1))
  return f"writer{writer:0{digits}d}/glyph{glyph}/drawing{drawing}.png"


def by_diagnosis(row: int) -> str:
  """Return the place of a drawing in the second layout.

  Each --crossing diagnoses in turn have the same patients.
  """
  unit, image = divmod(row, _IMAGES)
  diagnosis, patient = divmod(unit, _PATIENTS.value)
  person = diagnosis // _CROSSING.value * _PATIENTS.value + patient
  return f"diagnosis{diagnosis:02d}/patient{person:04d}/image{image}.png"


def main(_: Sequence[str]) -> None:
  """Write the PNG files."""
  place = by_writer
  writers, glyphs, drawings = _WRITERS.value, _GLYPHS, _DRAWINGS.value
  if _LAYOUT.value == "diagnosis":
    # One glyph of every writer, with one drawing for each of its images.
    place = by_diagnosis
    writers, glyphs, drawings = _DIAGNOSES, 1, _IMAGES * _PATIENTS.value
  out = pathlib.Path(_OUT.value)
  out.mkdir(parents=True)
  images = data.load(
      "glyphs",
      participants=writers,
      validation_participants=1,
      test_participants=1,
      glyphs=glyphs,
      drawings=drawings,
  ).train.images
  for row, image in enumerate(tqdm.tqdm(images, unit="image", disable=None)):
    path = out / place(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image[..., 0]).save(path)
  print(f"{len(images)} drawings in {out}")


if __name__ == "__main__":
  app.run(main)

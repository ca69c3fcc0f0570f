"""Writes the built-in glyphs as a folder tree of PNG files, to try own data on.

  python -m experiments.export_glyphs --out=DIR

DIR/writer000/glyph0/drawing0.png and so on: every writer has glyphs of their
own. --out must not exist yet.

  python -m experiments.export_glyphs --out=DIR --layout=diagnosis --crossing=2

DIR/diagnosis00/patient0000/image0.png and so on, to try classes above the units
whose privacy is kept: every glyph stands for a diagnosis, and a few drawings of
it for the images of one patient; with --crossing=2 every patient is in two
diagnoses.
"""

from collections.abc import Callable, Sequence
import functools
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
_LAYOUT = flags.DEFINE_enum(
    "layout", "writer", ["writer", "diagnosis"], "What the folders stand for."
)
_DIAGNOSES = flags.DEFINE_integer("diagnoses", 36, "How many diagnoses.", 1)
_PATIENTS = flags.DEFINE_integer("patients", 120, "Patients of each.", 1)
_CROSSING = flags.DEFINE_integer("crossing", 1, "Diagnoses of a patient.", 1)
_SIZE = flags.DEFINE_integer("size", 28, "Height and width in pixels.", 12)
_READ_BY = {  # Layout -> flags that it alone reads.
    "writer": (_WRITERS, _GLYPHS, _DRAWINGS),
    "diagnosis": (_DIAGNOSES, _PATIENTS, _CROSSING),
}


def _check_layout() -> None:
  """ValueError for a flag that the layout does not read."""
  for layout, read in _READ_BY.items():
    for flag in read:
      if flag.present and layout != _LAYOUT.value:
        raise ValueError(
            f"--{flag.name}={flag.value} is of --layout={layout}: give that,"
            " or leave it out"
        )


def check_crossing(some: int, diagnoses: int) -> None:
  """ValueError unless every patient can be in `some` diagnoses."""
  if diagnoses % some:
    fits = max(n for n in range(1, some) if diagnoses % n == 0)
    raise ValueError(
        f"--crossing={some} does not divide --diagnoses={diagnoses}, and some"
        f" patients would be in fewer: give --crossing={fits} or"
        f" --diagnoses={-(-diagnoses // some) * some}"
    )


def writers_folder(row: int, glyphs: int, drawings: int, writers: int) -> str:
  """Where a drawing of the first layout lies."""
  unit, drawing = divmod(row, drawings)
  writer, glyph = divmod(unit, glyphs)
  digits = len(str(writers - 1))
  return f"writer{writer:0{digits}d}/glyph{glyph}/drawing{drawing}.png"


def diagnosis_folder(row: int, patients: int, drawings: int, some: int) -> str:
  """Where a drawing of the second layout lies; `some` diagnoses a patient.

  Patients of diagnoses 0 .. some - 1 are the same, and so on.
  """
  unit, image = divmod(row, drawings)
  diagnosis, patient = divmod(unit, patients)
  person = diagnosis // some * patients + patient
  return f"diagnosis{diagnosis:02d}/patient{person:04d}/image{image}.png"


def export(
    out: pathlib.Path,
    place: Callable[[int], str],
    *,
    writers: int,
    glyphs: int,
    drawings: int,
    size: int,
) -> int:
  """Writes writers * glyphs * drawings files and returns how many these are.

  Args:
    out: the folder to make.
    place: where in it a drawing of a number goes.
    writers: of the built-in data, and so are the others.
    glyphs: of each writer.
    drawings: of each glyph.
    size: in pixels.

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
  for row, image in enumerate(tqdm.tqdm(images, unit="image", disable=None)):
    path = out / place(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image[..., 0]).save(path)
  return len(images)


def main(argv: Sequence[str]) -> None:
  """Writes the PNG files."""
  del argv
  _check_layout()
  out = pathlib.Path(_OUT.value)
  drawings, size = _DRAWINGS.value, _SIZE.value
  if _LAYOUT.value == "writer":
    writers, glyphs = _WRITERS.value, _GLYPHS.value
    place = functools.partial(
        writers_folder, glyphs=glyphs, drawings=drawings, writers=writers
    )
    told = f"drawings of {writers} writers"
  else:
    # One glyph of every writer, drawn as often as there are images of it.
    writers, glyphs = _DIAGNOSES.value, 1
    check_crossing(_CROSSING.value, writers)
    place = functools.partial(
        diagnosis_folder,
        patients=_PATIENTS.value,
        drawings=2,
        some=_CROSSING.value,
    )
    drawings = 2 * _PATIENTS.value
    told = f"images of {writers} diagnoses"
  count = export(
      out, place, writers=writers, glyphs=glyphs, drawings=drawings, size=size
  )
  print(f"{count} {told} in {out}")


if __name__ == "__main__":
  app.run(main)

"""Omniglot: 1623 handwritten characters of 50 alphabets, 20 drawings each.

Source: Lake, Salakhutdinov and Tenenbaum, Science 350, 2015 (MIT licence). The
original 105 x 105 one-bit PNGs are decoded with Pillow, always as {0, 255}
(other decoders give {0, 1} for one-bit files), and shrunk by nearest neighbour,
as the code of MAML++ does.
"""

from collections.abc import Iterator
import dataclasses
import io
import pathlib
import re
from typing import Literal, NamedTuple
import zipfile

import numpy as np

from episodic_dp import foreign
from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import originals
from episodic_dp.data import pools

DRAWINGS = 20  # Of each character.
SIZE = 28
# SHA-256 of the array of `load_images`.
ARRAY_SHA256 = (
    "330f7a7912db264794d53e1a5a644b2dc2783b250456bfd355f244024b48110b"
)

ORIGINALS = originals.read("omniglot")
_MEMBER = re.compile(
    r"images_(?:background|evaluation)/(?P<character>[^/]+/character\d+)/"
    r"\d+_(?P<drawer>\d+)\.png"
)
_TABLE = pathlib.Path(__file__).with_suffix(".tsv")
_TRAIN, _VALIDATION = 1150, 50  # Characters of the random split.
_VALIDATION_ALPHABETS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Omniglot(pools.Pool):
  """Options of Omniglot (DP-MAML has 400 000 participants).

  Attributes:
    split: division of the characters. "random" shuffles them into 1150 / 50 /
      423, as DP-MAML does; "vinyals" is the fixed split of Matching Networks,
      1028 / 172 / 423; "alphabets" trains on the 30 official background
      alphabets, validates on five of the 20 evaluation alphabets, chosen at
      random, and tests on the others. "alphabets" has the tree alphabet ->
      character -> drawing, the others class -> drawing. The published list of
      characters declares the units, each with 20 drawings.
    rotate: whether training tasks rotate whole characters at random by
      multiples of 90 degrees.
  """

  split: Literal["random", "vinyals", "alphabets"] = "random"
  rotate: bool = True


class Character(NamedTuple):
  """A character, its part in the Vinyals split, and its official set."""

  name: str  # "Alphabet/characterNN"
  part: str
  official: str  # "background" or "evaluation".

  @property
  def alphabet(self) -> str:
    """Return the name of its alphabet."""
    return self.name.split("/")[0]


def characters() -> tuple[Character, ...]:
  """Return the 1623 characters in the order of their names."""
  return tuple(Character(*columns) for columns in originals.read_table(_TABLE))


def load(options: Omniglot, where: originals.Where) -> dataset.Splits:
  """Return the three splits, each an array of uint8[rows, 28, 28, 1].

  Raises:
    FileNotFoundError: nothing is prepared and the zips are not there.
    DataError: a zip has the wrong checksum.
  """
  images, table = load_images(where), characters()
  parts = divide(options.split, options.seed)
  trees = {}
  if options.split == "alphabets":
    for part, chosen in parts.items():
      trees[part] = pools.grouped_tree(
          ("alphabet", "character", "drawing"),
          [(table[i].alphabet, table[i].name) for i in chosen],
          DRAWINGS,
      )
  return pools.make_splits(
      "omniglot",
      {part: images[chosen] for part, chosen in parts.items()},
      options,
      levels=("class", "drawing"),
      trees=trees,
      rotate=options.rotate,
  )


def divide(split: str, seed: int) -> dict[str, np.ndarray]:
  """Return the characters of each part.

  Args:
    split: division, as in `Omniglot`.
    seed: public seed of the random choices.

  Returns:
    int64 positions in `characters` for each of `dataset.PARTS`, rising and
    disjoint.
  """
  table = characters()
  # RandomState has the same stream in every version of NumPy.
  random = np.random.RandomState(seed)
  if split == "vinyals":
    part = np.asarray([c.part for c in table])
  elif split == "random":
    rest = len(table) - _TRAIN - _VALIDATION
    part = np.empty(len(table), object)
    part[random.permutation(len(table))] = np.repeat(
        dataset.PARTS, [_TRAIN, _VALIDATION, rest]
    )
  else:
    evaluation = {c.alphabet for c in table if c.official == "evaluation"}
    order = random.permutation(sorted(evaluation))
    part_of = dict.fromkeys(order, "test")
    part_of |= dict.fromkeys(order[:_VALIDATION_ALPHABETS], "validation")
    part = np.asarray([part_of.get(c.alphabet, "train") for c in table])
  return {name: np.flatnonzero(part == name) for name in dataset.PARTS}


def load_images(where: originals.Where) -> np.ndarray:
  """Return all drawings, mapped from the cache or prepared from the zips.

  Returns:
    uint8[1623, 20, 28, 28, 1] of 0 (ink) and 255 (paper), by character in the
    order of `characters` and by drawer.
  """
  return cache.published_images(
      ORIGINALS,
      where,
      _read_files,
      (len(characters()), DRAWINGS, SIZE, SIZE, 1),
      sha256=ARRAY_SHA256,
  )


def _read_files(paths: list[pathlib.Path]) -> Iterator[np.ndarray]:
  drawings = {}
  for path in paths:
    with zipfile.ZipFile(path) as z:
      for name in z.namelist():
        member = _MEMBER.fullmatch(name)
        if member:  # Neither a folder nor another file.
          place = member["character"], int(member["drawer"])
          drawings[place] = decode(z.read(name))
  for place in sorted(drawings):
    yield drawings[place]


def decode(png: bytes) -> np.ndarray:
  """Return one drawing, uint8[28, 28, 1] of 0 (ink) and 255 (paper)."""
  # Lazy import: presets are accounted for without it.
  from PIL import Image

  with foreign.picture(io.BytesIO(png)) as image:
    grey = image.convert("L").resize((SIZE, SIZE), Image.Resampling.NEAREST)
  return np.asarray(grey)[..., None]

"""Omniglot: 1623 handwritten characters of 50 alphabets, 20 drawings each.

Source: Lake, Salakhutdinov and Tenenbaum, Science 350, 2015 (MIT licence). The
original 105 x 105 one-bit PNGs are decoded with Pillow, always as {0, 255}
(other decoders give {0, 1} for one-bit files), and shrunk by nearest neighbour,
as the code of MAML++ does.
"""

import dataclasses
import io
import pathlib
import re
from typing import Literal
import zipfile

import numpy as np
from PIL import Image

from episodic_dp import plan
from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import originals
from episodic_dp.data import pools

CHARACTERS = 1623
DRAWINGS = 20  # Of each character.
SIZE = 28

_URL = "https://github.com/brendenlake/omniglot/raw/master/python/"
# First the official file, then a copy with the same PNG bytes that was zipped
# anew (entries sorted, time stamps fixed).
ORIGINALS = originals.Originals(
    name="omniglot",
    sources={"zips": {
        "background": originals.Archive(
            "images_background.zip",
            ("ad41ab679c8b5d90b271ef46be6987cc"
             "81211774a695c29dcc5367b2b26ee640",
             "9f05fdb9868a1df1bcb98752c4039027"
             "a5ba0594395665420db9dcbdbfbaae66"),
            _URL + "images_background.zip",
        ),
        "evaluation": originals.Archive(
            "images_evaluation.zip",
            ("1f61a8f3366785b057fc117d9228e78a"
             "16e3d976c8953b2a10fcc74cf0609cee",
             "0da4555ba8cc1a95cd28f70d9a096f18"
             "d8a3b1dfb3618e2812112405e9d6a843"),
            _URL + "images_evaluation.zip",
        ),
    }},
    online="zips",
)
_MEMBER = re.compile(
    r"images_(?:background|evaluation)/(?P<character>[^/]+/character\d+)/"
    r"\d+_(?P<drawer>\d+)\.png"
)
_VINYALS = pathlib.Path(__file__).with_suffix(".tsv")
_TRAIN, _VALIDATION = 1150, 50  # Characters of the random split.
_VALIDATION_ALPHABETS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(pools.Options):
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


def load(options: Options, where: originals.Where) -> dataset.Splits:
  """Return the three splits, each an array of uint8[rows, 28, 28, 1].

  Raises:
    FileNotFoundError: nothing is prepared and the zips are not there.
    ValueError: a zip has the wrong checksum.
  """
  arrays = load_arrays(where)
  images, characters = arrays["images"], arrays["characters"]
  parts = divide(
      options.split, characters, arrays["background"], options.seed
  )
  trees = {}
  if options.split == "alphabets":
    trees = {p: _alphabet_tree(characters[n]) for p, n in parts.items()}
  return pools.make_splits(
      "omniglot",
      {part: images[numbers] for part, numbers in parts.items()},
      options,
      levels=("class", "drawing"),
      description=(
          f"characters of Omniglot, {DRAWINGS} drawings each, {SIZE} x {SIZE}"
          f" by nearest neighbour, split '{options.split}'"
      ),
      hierarchies=trees,
      rotate=options.rotate,
  )


def _alphabet_tree(characters: np.ndarray) -> plan.Hierarchy:
  """Build alphabet -> character -> drawing over rows in this order."""
  names = np.repeat(characters, DRAWINGS)
  return plan.Hierarchy.from_labels(
      {"alphabet": alphabet_of(names), "character": names},
      leaf="drawing",
      units=list(zip(alphabet_of(characters), characters)),
  )


def divide(
    split: str, characters: np.ndarray, background: np.ndarray, seed: int
) -> dict[str, np.ndarray]:
  """Return the characters of each part.

  Args:
    split: division, as in `Options`.
    characters: names [characters] as "Alphabet/characterNN".
    background: bool[characters], the official background set.
    seed: public seed of the random choices.

  Returns:
    int64 positions in `characters` for each of `dataset.PARTS`, rising and
    disjoint.
  """
  # RandomState promises the same stream in every version of NumPy.
  random = np.random.RandomState(seed)
  if split == "random":
    order = random.permutation(len(characters))
    groups = np.split(order, [_TRAIN, _TRAIN + _VALIDATION])
    return {p: np.sort(g) for p, g in zip(dataset.PARTS, groups)}
  if split == "vinyals":
    part_of = vinyals()
    part = np.asarray([part_of[c] for c in characters])
  else:
    alphabets = alphabet_of(characters)
    others = random.permutation(np.unique(alphabets[~background]))
    validation = np.isin(alphabets, others[:_VALIDATION_ALPHABETS])
    part = np.where(
        background, "train", np.where(validation, "validation", "test")
    )
  return {p: np.flatnonzero(part == p) for p in dataset.PARTS}


def alphabet_of(characters: np.ndarray) -> np.ndarray:
  """Return the alphabet in each name "Alphabet/characterNN"."""
  return np.asarray([c.split("/")[0] for c in characters])


def vinyals() -> dict[str, str]:
  """Return the part of each character in the split of Matching Networks."""
  return {character: part for character, part in pools.read_table(_VINYALS)}


def load_arrays(where: originals.Where) -> cache.Arrays:
  """Return all drawings, from the cache or prepared from the zips.

  Returns:
    "images" uint8[1623, 20, 28, 28, 1] of 0 (ink) and 255 (paper), by character
    and drawer; "characters", the 1623 names "Alphabet/characterNN" in rising
    order; "background" bool[1623], the official background set.
  """
  return cache.arrays(
      ORIGINALS, where, generate=_records, assemble=_assemble
  )


def _records(found: originals.Found) -> originals.Records:
  for part, archive in found[1].items():
    with zipfile.ZipFile(archive) as z:
      for name in z.namelist():
        drawing = _MEMBER.fullmatch(name)
        if drawing:  # Neither a folder nor another file.
          key = f"{drawing['character']}/{int(drawing['drawer']):02d}/{part}"
          yield key, decode(z.read(name), name).tobytes()


def _assemble(held: list[tuple[str, bytes]]) -> cache.Arrays:
  keys = np.asarray([key.rsplit("/", 2) for key, _ in held])
  pixels = np.frombuffer(b"".join(image for _, image in held), np.uint8)
  names = np.unique(keys[:, 0])
  if (len(keys), len(names)) != (CHARACTERS * DRAWINGS, CHARACTERS):
    raise ValueError(
        f"the zips hold {len(keys)} drawings of {len(names)} characters, and"
        f" Omniglot {DRAWINGS} of {CHARACTERS}: use another copy"
    )
  return {
      "images": pixels.reshape(CHARACTERS, DRAWINGS, SIZE, SIZE, 1),
      "characters": names,
      "background": keys[::DRAWINGS, 2] == "background",
  }


def decode(png: bytes, name: str = "image") -> np.ndarray:
  """Return one drawing, uint8[28, 28, 1] of 0 (ink) and 255 (paper).

  Raises:
    ValueError: the picture has other grey values.
  """
  with Image.open(io.BytesIO(png)) as image:
    grey = image.convert("L").resize((SIZE, SIZE), Image.Resampling.NEAREST)
  array = np.asarray(grey, np.uint8)[..., None]
  if not ((array == 0) | (array == 255)).all():
    raise ValueError(
        f"{name} has grey values {np.unique(array).tolist()}: an Omniglot"
        " drawing has only 0 and 255; use the original one-bit PNGs"
    )
  return array

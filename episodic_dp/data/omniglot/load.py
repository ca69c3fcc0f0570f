"""Loading Omniglot: from the cache, the records or the original files."""

import pathlib
from typing import Literal

import numpy as np

from episodic_dp import plan
from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import files
from episodic_dp.data import options
from episodic_dp.data import pool
from episodic_dp.data import prepared
from episodic_dp.data.omniglot import source
from episodic_dp.data.omniglot import splits

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]

_FIELDS = ("images", "characters", "background")  # Of the cached file.


def load(
    *,
    data_dir: files.Path | None = None,
    cache_dir: files.Path | None = None,
    download: bool = False,
    split: Literal["random", "vinyals", "alphabets"] = "random",
    seed: int = 0,
    participants: int | None = None,
    way: int = 5,
    per_class: int = 2,
    rotate: bool = True,
) -> dataset.Splits:
  """The three splits, each with its own array of uint8[rows, 28, 28, 1].

  Args:
    data_dir: folder that holds `images_background.zip` and
      `images_evaluation.zip`, or a folder `omniglot` with them. Not needed
      once the data are prepared.
    cache_dir: where the prepared data are kept; None means the environment
      variable TFDS_DATA_DIR, or else ~/tensorflow_datasets.
    download: fetch the official zips when data_dir does not have them.
    split: how the characters are divided; see `splits.divide`.
      "alphabets" gives the tree alphabet -> character -> drawing, the others
      class -> drawing. The published list of characters declares the units,
      and 20 drawings of each the sizes.
    seed: public seed of the division of the characters and of the
      participants, 0 to 2^32 - 1.
    participants: None trains on the tree as it is. A number trains on that many
      synthetic participants, drawn from the training characters by a public
      function of the seed (DP-MAML uses 400 000). They share records, so that
      only a participant can be given a guarantee.
    way: characters of each synthetic participant.
    per_class: drawings of each of these characters (shot + query).
    rotate: whether training tasks rotate whole characters at random.

  Raises:
    FileNotFoundError: nothing is prepared and the zips are not there.
    ValueError: a zip has the wrong checksum, or an option is out of range.
  """
  options.check_seed(source.NAME, seed)
  splits.check(split)  # Before anything is prepared.
  images, characters, background = load_arrays(
      data_dir=data_dir, cache_dir=cache_dir, download=download
  )
  owners = None
  if participants is not None:
    owners = pool.Participants(participants, way, per_class, int(seed))
  chosen = splits.divide(split, characters, background, int(seed))
  parts = {}
  for part, numbers in chosen.items():
    train = part == "train"
    tree = None
    if split == "alphabets":
      tree = _alphabet_tree(characters[numbers])
    parts[part] = pool.make(
        f"omniglot/{part}",
        images[numbers],
        levels=("class", "drawing"),
        hierarchy=tree,
        participants=owners if train else None,
        rotate=rotate and train,
        description=(
            f"{len(numbers)} characters of Omniglot, {source.DRAWINGS} drawings"
            f" each, {source.SIZE} x {source.SIZE} by nearest neighbour, split"
            f" '{split}', public seed {seed}"
        ),
    )
  return dataset.Splits(**parts)


def _alphabet_tree(characters: np.ndarray) -> plan.Hierarchy:
  """alphabet -> character -> drawing; the rows are in this order already.

  The published list of characters declares the units.
  """
  names = np.repeat(characters, source.DRAWINGS)
  return plan.Hierarchy.from_labels(
      {"alphabet": splits.alphabet_of(names), "character": names},
      leaf="drawing",
      units=list(zip(splits.alphabet_of(characters), characters)),
  )


def load_arrays(
    *,
    data_dir: files.Path | None = None,
    cache_dir: files.Path | None = None,
    download: bool = False,
) -> Arrays:
  """All drawings: from the cache, or prepared from the zips.

  Returns:
    uint8[1623, 20, 28, 28, 1] drawings of 0 (ink) and 255 (paper), by character
    and drawer; the 1623 names "Alphabet/characterNN" in rising order; and
    bool[1623], whether a character is of the official background set.
  """
  images, characters, background = prepared.load_arrays(
      source.ORIGINALS,
      cache.root(cache_dir) / source.FOLDER,
      source.VERSION,
      _FIELDS,
      data_dir=data_dir,
      download=download,
      prepare=_prepare,
      expected=_as_expected,
  )
  return images, characters, background


def _as_expected(
    images: np.ndarray, characters: np.ndarray, background: np.ndarray
) -> bool:
  shape = (source.CHARACTERS, source.DRAWINGS, source.SIZE, source.SIZE, 1)
  return (
      images.dtype == np.uint8
      and images.shape == shape
      and characters.dtype.kind == "U"
      and characters.shape == shape[:1]
      and background.dtype == bool
      and background.shape == shape[:1]
  )


def _prepare(records: pathlib.Path, found: files.Found | None) -> Arrays:
  """Decodes the zips through TFDS and reads the records back in order."""
  # Lazy import: TFDS takes seconds.
  from episodic_dp.data.omniglot import builder

  images, names, drawers, background = builder.prepare(
      records.parent.parent, found and found[1]
  )
  order = np.lexsort((drawers, names))
  characters = np.unique(names)
  drawings = source.CHARACTERS * source.DRAWINGS
  if len(order) == drawings and len(characters) == source.CHARACTERS:
    images = images[order].reshape(
        source.CHARACTERS, source.DRAWINGS, source.SIZE, source.SIZE, 1
    )
    background = background[order][:: source.DRAWINGS]
    if _as_expected(images, characters, background):
      return images, characters, background
  raise ValueError(
      f"the prepared Omniglot in {records} has {len(order)} drawings of"
      f" {len(characters)} characters instead of {drawings} of"
      f" {source.CHARACTERS}: remove this folder and prepare it again"
  )

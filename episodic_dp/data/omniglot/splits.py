"""Ways to divide the 1623 characters of Omniglot; all of them are public."""

import pathlib

import numpy as np

from episodic_dp.data import dataset

SPLITS = ("random", "vinyals", "alphabets")

_TRAIN_CHARACTERS = 1150
_VALIDATION_CHARACTERS = 50
_VALIDATION_ALPHABETS = 5
_VINYALS = pathlib.Path(__file__).with_name("vinyals.tsv")


def check(split: str) -> None:
  """ValueError unless the split is one of `SPLITS`."""
  if split not in SPLITS:
    raise ValueError(f"omniglot option split={split!r} must be one of {SPLITS}")


def divide(
    split: str, characters: np.ndarray, background: np.ndarray, seed: int
) -> dict[str, np.ndarray]:
  """The characters of each part.

  Args:
    split: "random" shuffles the characters into 1150 / 50 / 423, as DP-MAML
      does; "vinyals" is the fixed split of Matching Networks, 1028 / 172 / 423;
      "alphabets" keeps alphabets whole: the 30 official background alphabets
      train, five of the 20 evaluation alphabets, chosen at random, validate and
      the others test.
    characters: names [characters] as "Alphabet/characterNN".
    background: bool[characters], whether a character is of the background set.
    seed: of the random choices.

  Returns:
    int64 positions in `characters` for each of `dataset.PARTS`, rising and
    disjoint.

  Raises:
    ValueError: unknown split.
  """
  check(split)
  # RandomState promises the same stream in every version of NumPy.
  random = np.random.RandomState(seed)
  if split == "random":
    order = random.permutation(len(characters))
    ends = [_TRAIN_CHARACTERS, _TRAIN_CHARACTERS + _VALIDATION_CHARACTERS]
    groups = np.split(order, ends)
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
  """The alphabet in each name "Alphabet/characterNN"."""
  return np.asarray([c.split("/")[0] for c in characters])


def vinyals() -> dict[str, str]:
  """The part of each character in the split of Matching Networks."""
  lines = _VINYALS.read_text().splitlines()
  return dict(line.split("\t") for line in lines if not line.startswith("#"))

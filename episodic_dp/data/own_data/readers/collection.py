"""Examples of many files, numbered in the order in which they were added."""

from collections.abc import Callable
import hashlib
import os
import pathlib

import numpy as np

from episodic_dp.data.own_data.readers import formats
from episodic_dp.data.own_data.readers.example import Example


class Collection:
  """Files below a folder, of any format, and the examples that they hold.

  Attributes:
    root: the folder.
    examples: of each number, the file (relative to the root) and the page.
  """

  def __init__(self, root: pathlib.Path):
    self.root = root
    self.examples: list[tuple[str, int]] = []
    self._several: set[str] = set()
    self._digest = hashlib.sha256()

  @property
  def fingerprint(self) -> str:
    """Changes when a file is added, changed or renamed."""
    return self._digest.hexdigest()

  def add(self, name: str, status: os.stat_result) -> np.ndarray:
    """Adds a file; the int64 numbers of its examples.

    Raises:
      ValueError: it has to be read to count them, and cannot be; one sentence.
    """
    pages = formats.pages(os.path.join(self.root, name))
    first = len(self.examples)
    self.examples += [(name, page) for page in pages]
    if len(pages) > 1:
      self._several.add(name)
    self._digest.update(os.fsencode(name))
    # No file name holds a zero byte: names and numbers cannot run together.
    self._digest.update(
        f"\0{status.st_size}\0{status.st_mtime_ns}\0{len(pages)}\0".encode()
    )
    return np.arange(first, len(self.examples))

  def reader(self) -> Callable[[int], Example]:
    """Reads an example by its number; ValueError, one sentence."""

    def read(number: int) -> Example:
      name, page = self.examples[number]
      return formats.read(self.root / name, page)

    return read

  def name_of(self, number: int) -> str:
    """The file of an example and, where it has several, the page."""
    name, page = self.examples[number]
    path = str(self.root / name)
    return f"page {page + 1} of {path}" if name in self._several else path

"""Small archives of CIFAR-100's three kinds, with the same made-up images."""

import dataclasses
import hashlib
import io
import struct
import tarfile
import zipfile

import numpy as np
from PIL import Image

from episodic_dp.data.cifar_fs import source

GRID = (2, 3)
EXAMPLES = 6
# In the order of the labels, as in the real table.
TABLE = {
    "apple": ("fruit", "train"),
    "bee": ("insect", "train"),
    "cockroach": ("insect", "validation"),
    "fig": ("fruit", "train"),
    "gnat": ("insect", "train"),
    "melon": ("fruit", "test"),
    "moth": ("insect", "train"),
}
ZIPS = {"train": "train.zip", "validation": "val.zip", "test": "test.zip"}


def _made_up():
  """uint8[7, 6, 32, 32, 3] in the order that loading must give."""
  images = np.random.RandomState(0).randint(
      0, 256, (len(TABLE), EXAMPLES, 32, 32, 3), np.uint8
  )
  images[1, 0] = images[1, 1]  # An image that occurs twice.
  for group in images:
    group[:] = group[
        np.argsort([hashlib.sha256(image).hexdigest() for image in group])
    ]
  return images


IMAGES = _made_up()


def _sheets(root):
  for part, name in ZIPS.items():
    with zipfile.ZipFile(root / name, "w") as z:
      for label, (member, (_, own)) in enumerate(TABLE.items()):
        if own == part:
          buffer = io.BytesIO()
          sheet = IMAGES[label].reshape(*GRID, 32, 32, 3)
          sheet = sheet.transpose(0, 2, 1, 3, 4).reshape(64, 96, 3)
          Image.fromarray(sheet).save(buffer, "WEBP", lossless=True)
          z.writestr(f"{member}.webp", buffer.getvalue())


def _shuffled():
  """Two batches (images [n, 3072] in planes, labels [n]) in no order."""
  planes = IMAGES.transpose(0, 1, 4, 2, 3).reshape(-1, 3072)
  labels = np.repeat(np.arange(len(TABLE)), EXAMPLES)
  order = np.random.RandomState(1).permutation(len(labels))
  return [(planes[o], labels[o]) for o in (order[:30], order[30:])]


def tar(path, folder, members):
  with tarfile.open(path, "w:gz") as tar:
    for name, content in members.items():
      info = tarfile.TarInfo(f"{folder}/{name}")
      info.size = len(content)
      tar.addfile(info, io.BytesIO(content))


def _binary(root):
  def batch(planes, labels):
    coarse = np.full_like(labels, 9)
    return np.concatenate(
        [coarse[:, None], labels[:, None], planes], axis=1
    ).astype(np.uint8)

  train, test = (batch(*b).tobytes() for b in _shuffled())
  tar(
      root / "cifar-100-binary.tar.gz",
      "cifar-100-binary",
      {
          "coarse_label_names.txt": b"",
          "train.bin": train,
          "test.bin": test,
      },
  )


def _old_pickle(planes, labels):
  """A batch as Python 2 and the NumPy of its time wrote it."""

  def text(value):
    return b"T" + struct.pack("<i", len(value)) + value  # A byte string.

  def number(value):
    return b"J" + struct.pack("<i", value)

  dtype = (
      b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR("
      + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0)
      + b"tb"
  )
  array = (
      b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n("
      + number(0) + b"t" + text(b"b") + b"tR("
      + number(1) + b"(" + number(planes.shape[0]) + number(3072) + b"t"
      + dtype + b"\x89" + text(planes.tobytes()) + b"tb"
  )
  numbers = b"](" + b"".join(number(n) for n in labels) + b"e"
  return (
      b"\x80\x02}(" + text(b"data") + array + text(b"fine_labels") + numbers
      + b"u."
  )


def _python(root):
  train, test = (_old_pickle(*b) for b in _shuffled())
  tar(
      root / "cifar-100-python.tar.gz",
      "cifar-100-python",
      {"meta": b"not read", "test": test, "train": train},
  )


WRITERS = {"sheets": _sheets, "binary": _binary, "python": _python}


def sha256(path):
  return hashlib.sha256(path.read_bytes()).hexdigest()


def replace_sources(monkeypatch, sources):
  originals = dataclasses.replace(source.ORIGINALS, sources=sources)
  monkeypatch.setattr(source, "ORIGINALS", originals)

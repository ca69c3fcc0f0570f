"""Small original files of the published data sets, of the same layout."""

from collections.abc import Callable
import dataclasses
import gzip
import hashlib
import importlib
import io
import pathlib
import tarfile
from typing import Any
import zipfile

import numpy as np
from PIL import Image

from episodic_dp.data import originals

DRAWINGS, EXAMPLES = 20, 6
CHARACTERS = {
    "background": (
        "Latin/character02", "Latin/character01", "Futurama/character01"
    ),
    "evaluation": ("Aurek/character01", "Tengwar/character10"),
}
# CIFAR's classes in the order of the labels.
CIFAR = {
    "apple": ("fruit", "train"), "bee": ("insect", "train"),
    "cockroach": ("insect", "validation"), "fig": ("fruit", "train"),
    "gnat": ("insect", "train"), "melon": ("fruit", "test"),
    "moth": ("insect", "train"),
}
# mini-ImageNet's classes; their order is not that of the names in a part.
MINI = {
    "n00000007": ("train_a", "train"), "n00000003": ("train_a", "train"),
    "n00000004": ("train_b", "train"), "n00000001": ("val", "validation"),
    "n00000006": ("test", "test"), "n00000002": ("test", "test"),
}
NUMBERS = (1, 5, 9, 11, 12, 600)  # Of the images of each class.
WRITERS = (
    (7, "train", (2, 0, 3, 1, 2, 0, 0, 0, 0, 2)),
    (300, "train", (0, 0, 0, 0, 0, 0, 0, 0, 0, 1)),
    (326, "t10k", (2, 3, 2, 0, 0, 0, 0, 0, 0, 1)),
    (327, "t10k", (3, 2, 2, 1, 0, 0, 0, 0, 0, 0)),
    (330, "t10k", (0, 0, 0, 0, 0, 0, 0, 2, 2, 2)),
    (331, "t10k", (5, 5, 1, 0, 0, 0, 0, 0, 0, 0)),
)


def drawing(name: str, drawer: int) -> np.ndarray:
  """Return bool[105, 105], another for every name and drawer."""
  digest = hashlib.sha256(f"{name} {drawer}".encode()).digest()
  return np.random.RandomState(digest[0] + 256 * digest[1]).rand(105, 105) > 0.2


def omniglot_files(root: pathlib.Path) -> None:
  """Write two zips of one-bit drawings, in no order."""
  for part, names in CHARACTERS.items():
    with zipfile.ZipFile(root / f"images_{part}.zip", "w") as z:
      z.writestr("__MACOSX/._images", b"no drawing")
      for name in names:
        for drawer in range(DRAWINGS, 0, -1):
          paper = Image.fromarray(drawing(name, drawer))
          place = f"images_{part}/{name}/0001_{drawer:02d}.png"
          z.writestr(place, _encoded(paper, "PNG"))


def _encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
  buffer = io.BytesIO()
  image.save(buffer, kind, **options)
  return buffer.getvalue()


def omniglot_images() -> np.ndarray:
  """Return uint8[5, 20, 28, 28, 1] by nearest neighbour."""
  # Pixel i of 28 shows pixel int((i + 0.5) * 3.75) of 105.
  at = ((np.arange(28) + 0.5) * 105 / 28).astype(int)
  names = sorted(sum(CHARACTERS.values(), ()))
  return 255 * np.asarray(
      [[drawing(n, d + 1)[np.ix_(at, at)] for d in range(DRAWINGS)]
       for n in names], np.uint8
  )[..., None]


def cifar_images() -> np.ndarray:
  """Return uint8[7, 6, 32, 32, 3], sorted by digest inside a class."""
  images = np.random.RandomState(0).randint(
      0, 256, (len(CIFAR), EXAMPLES, 32, 32, 3), np.uint8
  )
  images[1, 0] = images[1, 1]  # An image that occurs twice.
  for group in images:
    digests = [hashlib.sha256(image).hexdigest() for image in group]
    group[:] = group[np.argsort(digests)]
  return images


def cifar_sheets(root: pathlib.Path) -> None:
  """Write a zip per part with one lossless picture per class."""
  for part, file in (("train", "train"), ("validation", "val"), ("test",) * 2):
    with zipfile.ZipFile(root / f"{file}.zip", "w") as z:
      for images, (name, (_, own)) in zip(cifar_images(), CIFAR.items()):
        if own == part:
          sheet = images.reshape(2, 3, 32, 32, 3).transpose(0, 2, 1, 3, 4)
          grid = Image.fromarray(sheet.reshape(64, 96, 3))
          content = _encoded(grid, "WEBP", lossless=True)
          z.writestr(f"{name}.webp", content)


def cifar_binary(root: pathlib.Path) -> None:
  """Write the archive of raw bytes, whose images are in no order."""
  planes = cifar_images().transpose(0, 1, 4, 2, 3).reshape(-1, 3072)
  labels = np.repeat(np.arange(len(CIFAR)), EXAMPLES)[:, None]
  rows = np.concatenate([labels * 0 + 9, labels, planes], 1).astype(np.uint8)
  order = np.random.RandomState(1).permutation(len(labels))
  with tarfile.open(root / "cifar-100-binary.tar.gz", "w:gz") as archive:
    for name, held in (
        ("names.txt", []), ("train.bin", order[:30]), ("test.bin", order[30:])
    ):
      content = rows[held].tobytes() if len(held) else b"names"
      info = tarfile.TarInfo(f"folder/{name}")
      info.size = len(content)
      archive.addfile(info, io.BytesIO(content))


def picture(name: str, kind: str, size: int = 84) -> bytes:
  """Return one picture per name, each of another colour, as a file."""
  colour = np.frombuffer(hashlib.sha256(name.encode()).digest()[:3], np.uint8)
  image = Image.new("RGB", (size, size), tuple(colour.tolist()))
  return _encoded(image, kind)


def mini_zips(root: pathlib.Path) -> None:
  """Write four zips of WebP files."""
  for wnid, (part, _) in MINI.items():
    with zipfile.ZipFile(root / f"{part}.zip", "a") as z:
      for number in NUMBERS:
        name = f"{wnid}{number:08d}"
        z.writestr(f"{name}.webp", picture(name, "WEBP"))


def mini_jpegs(root: pathlib.Path) -> None:
  """Write a folder of JPEGs."""
  (root / "images").mkdir()
  for wnid in MINI:
    for number in NUMBERS:
      name = f"{wnid}{number:08d}"
      (root / "images" / f"{name}.jpg").write_bytes(picture(name, "JPEG"))


def mini_images(kind: str) -> np.ndarray:
  """Return uint8[6, 6, 84, 84, 3] as decoded."""
  files = [[picture(f"{w}{n:08d}", kind) for n in NUMBERS] for w in MINI]
  return np.asarray(
      [[np.asarray(Image.open(io.BytesIO(f)).convert("RGB")) for f in group]
       for group in files]
  )


def idx(array: np.ndarray) -> bytes:
  """Return the content of an IDX file."""
  kind = {"uint8": 8, "int32": 12}[array.dtype.name]
  header = bytes([0, 0, kind, array.ndim])
  header += np.asarray(array.shape, ">i4").tobytes()
  return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def mnist_files(root: pathlib.Path) -> None:
  """Write images whose first pixels are writer, digit and number."""
  for file, labels in (("train", "train"), ("t10k", "test")):
    rows = [
        (digit, 0, writer, k, 0, 0, 0, 0)
        for writer, own, counts in WRITERS if own == file
        for digit, count in enumerate(counts) for k in range(count)
    ]
    rows = np.random.RandomState(0).permutation(np.asarray(rows, np.int32))
    images = np.zeros((len(rows), 28, 28), np.uint8)
    images[:, 0, 0], images[:, 0, 1] = rows[:, 2] % 256, rows[:, 0]
    # The official file of test labels has rows without an image at its end.
    surplus = np.full((3 * (file == "t10k"), 8), 9, np.int32)
    rows = np.concatenate([rows, surplus])
    for name, array in (
        (f"{file}-images-idx3-ubyte.gz", images),
        (f"qmnist-{labels}-labels-idx2-int.gz", rows),
    ):
      (root / name).write_bytes(gzip.compress(idx(array)))


def mnist_images() -> np.ndarray:
  """Return uint8[n, 28, 28, 1] by writer and digit."""
  marks = [
      (writer % 256, digit)
      for writer, _, counts in WRITERS
      for digit, count in enumerate(counts) for _ in range(count)
  ]
  images = np.zeros((len(marks), 28, 28, 1), np.uint8)
  images[:, 0, :2, 0] = marks
  return images


@dataclasses.dataclass(frozen=True)
class Small:
  """A published data set in small.

  Attributes:
    name: of its module.
    source: the key of its files in `Originals.sources`.
    write: writes them into a folder.
    images: returns all images in the order of the cache.
    arguments: of the function that loads the images, before `where`.
  """

  name: str
  source: str
  write: Callable[[pathlib.Path], None]
  images: Callable[[], np.ndarray]
  arguments: tuple[str, ...] = ()

  @property
  def module(self) -> Any:
    """Return the module of the data set."""
    return importlib.import_module(f"episodic_dp.data.{self.name}")

  def load(self, **where: Any) -> np.ndarray:
    """Return all images."""
    place = originals.Where(**where)
    return self.module.load_images(*self.arguments, place)

  def shrink(self, monkeypatch: Any, root: pathlib.Path) -> None:
    """Replace published sizes and checksums by those of the small files."""
    module = self.module
    (root / "table.tsv").write_text("\n".join(_table(self.name)))
    changes = {
        "_TRAIN": 2, "_VALIDATION": 1, "_VALIDATION_ALPHABETS": 1,
        "EXAMPLES": EXAMPLES, "_TABLE": root / "table.tsv",
        "ARRAY_SHA256": hashlib.sha256(self.images()).hexdigest(),
    }
    for name, value in changes.items():
      if hasattr(module, name):
        monkeypatch.setattr(module, name, value)
    self.change_archives(monkeypatch, root=root)

  def change_archives(
      self, monkeypatch: Any, root: pathlib.Path | None = None, **changes: Any
  ) -> None:
    """Replace checksums by those of the files in `root`, or other fields.

    A changed `url` is the folder of the files.
    """
    held = self.module.ORIGINALS
    found = held[self.arguments[0]] if self.arguments else held
    archives = []
    for archive in found.sources[self.source]:
      new = dict(changes)
      if "url" in new:
        new["url"] += archive.file
      if root and archive.sha256:
        new["sha256"] = (sha256(root / archive.file),)
      archives.append(dataclasses.replace(archive, **new))
    new = dataclasses.replace(found, sources={self.source: tuple(archives)})
    changed = held | {self.arguments[0]: new} if self.arguments else new
    monkeypatch.setattr(self.module, "ORIGINALS", changed)


def _table(name: str) -> list[str]:
  if name == "omniglot":
    return sorted(
        f"{c}\ttrain\t{part}" for part, names in CHARACTERS.items()
        for c in names
    )
  if name == "cifar_fs":
    return [f"{k}\t{s}\t{p}" for k, (s, p) in CIFAR.items()]
  if name == "mini_imagenet":
    bits = sum(1 << (number - 1) for number in NUMBERS)
    return [f"{wnid}\t{part}\t{bits:x}" for wnid, (_, part) in MINI.items()]
  return [f"{n}\t{f}\t{' '.join(map(str, c))}" for n, f, c in WRITERS]


def sha256(path: pathlib.Path) -> str:
  """Return the digest of a file."""
  return hashlib.sha256(path.read_bytes()).hexdigest()


SETS = {
    "omniglot": Small("omniglot", "zips", omniglot_files, omniglot_images),
    "sheets": Small("cifar_fs", "sheets", cifar_sheets, cifar_images),
    "binary": Small("cifar_fs", "binary", cifar_binary, cifar_images),
    "webp": Small(
        "mini_imagenet", "zips", mini_zips, lambda: mini_images("WEBP"),
        ("webp",),
    ),
    "jpeg": Small(
        "mini_imagenet", "folder", mini_jpegs, lambda: mini_images("JPEG"),
        ("jpeg",),
    ),
    "mnist": Small("mnist_writers", "files", mnist_files, mnist_images),
}

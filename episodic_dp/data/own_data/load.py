"""Your own images, from a folder tree or an NPZ, as a data set.

A folder `class/image` or `group/class/image` (`folder`), or an .npz with label
arrays (`npz`), becomes the tree of units that a guarantee speaks of.

What is public by assumption
----------------------------
The names of the units, how many records each holds, and which units are for
training, validation and test: they shape the plan, occur in messages and in
config.json, and no guarantee covers them. The guarantee is about the images of
the training part. Everything in validation and test is public.

Which units there are must not follow from the images, or a unit whose last
image is taken away would change how often all others are drawn. Every folder is
a unit, also an empty one; an .npz declares its units in an array `units`.
Without that array they are read off the images, and every guarantee below the
first level says that it assumes a list of them.

A record is one file, or one row. A copy under another name is a record of its
own: a guarantee for one record does not cover adding or removing all copies.
"""

from collections.abc import Sequence
from concurrent import futures
import dataclasses
import hashlib
import os
import pathlib
import tempfile

from absl import logging
import numpy as np
import tqdm

from episodic_dp import plan
from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import files
from episodic_dp.data.own_data import folder
from episodic_dp.data.own_data import listing as listing_lib
from episodic_dp.data.own_data import npz
from episodic_dp.data.own_data import pictures

_SIZE = 28
_BATCH = 1024  # Images handed to the decoding threads at once.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Survey:
  """The records and their units, known before an image is decoded.

  Attributes:
    listing: the records.
    parts: part -> its classes in tree order.
    hierarchies: part -> the tree of its units.
  """

  listing: listing_lib.Listing
  parts: dict[str, tuple[listing_lib.Class, ...]]
  hierarchies: dict[str, plan.Hierarchy]


def survey(
    data_dir: files.Path | None,
    *,
    levels: Sequence[str] | None = None,
    shares: Sequence[float] | None = None,
    seed: int = 0,
) -> Survey:
  """Lists and divides the data without reading an image, and without JAX.

  Args:
    data_dir: as for `load`, and so are the others.
    levels: names of the levels.
    shares: of training, validation and test.
    seed: public seed of the division.

  Raises:
    FileNotFoundError: there is no such folder or file.
    ValueError: something in it cannot be used; one sentence that names it.
  """
  if data_dir is None:
    raise FileNotFoundError(
        "own_data needs data_dir: give a folder of images, class/image or"
        " group/class/image, or an .npz of arrays"
    )
  if levels is not None and (
      isinstance(levels, str) or not all(isinstance(n, str) for n in levels)
  ):
    raise ValueError(
        f"own_data option levels={levels!r} must be a tuple of names, such as"
        " ('class', 'image')"
    )
  if levels is not None:
    levels = tuple(levels)  # A config that was read back has a list.
  path = pathlib.Path(data_dir).expanduser()
  if path.is_dir():
    listing = folder.listing(path, levels)
  elif path.is_file() and path.suffix == ".npz":
    listing = npz.listing(path, levels)
  elif path.exists():
    raise ValueError(
        f"{path} is neither a folder nor an .npz: give a folder of images or a"
        " file written by numpy.savez"
    )
  else:
    raise FileNotFoundError(
        f"{path} does not exist: give a folder of images or an .npz"
    )
  parts = listing_lib.divide(listing, shares=shares, seed=seed)
  return Survey(
      listing=listing,
      parts=parts,
      hierarchies={
          part: listing_lib.hierarchy(
              listing.levels, classes, declared=listing.declared
          )
          for part, classes in parts.items()
      },
  )


def load(
    *,
    data_dir: files.Path | None = None,
    cache_dir: files.Path | None = None,
    levels: Sequence[str] | None = None,
    size: int | None = None,
    color: bool | None = None,
    shares: Sequence[float] | None = None,
    seed: int = 0,
    surveyed: Survey | None = None,
) -> dataset.Splits:
  """The three splits of your own images; their classes are disjoint.

  Images are decoded once, with a progress bar, into a file that later runs map;
  it is made anew when a file of the source, or an option, changes. It holds the
  decoded images, so its folder is readable by its owner only.

  Args:
    data_dir: a folder tree of images (see `folder`), which may be divided into
      train/, validation/ and test/ at the top, or an .npz (see `npz`), which
      may say so in an array `split`.
    cache_dir: where the decoded images are kept, in own_data/; None means the
      environment variable TFDS_DATA_DIR, or else ~/tensorflow_datasets.
    levels: names of the levels, primary units first, images last; None means
      class, image or group, class, image.
    size: height and width in pixels; None means 28, or those of an .npz.
    color: RGB (true) or grey; None means grey, or as in an .npz.
    shares: of the primary units for training, validation and test, where the
      source does not say; None means 0.6, 0.2, 0.2.
    seed: public seed of that division, 0 to 2^32 - 1.
    surveyed: of `survey` with these options, where it was made already.

  Returns:
    Splits with images uint8[images, height, width, 1 or 3], mapped from disk.

  Raises:
    FileNotFoundError: there is no such folder or file.
    ValueError: an option, a file or an array cannot be used; one sentence.
  """
  found = surveyed or survey(
      data_dir, levels=levels, shares=shares, seed=seed
  )
  shape = _image_shape(found.listing, size, color)
  images = _images(found, shape, cache.root(cache_dir) / "own_data")
  parts, first = {}, 0
  for part, hierarchy in found.hierarchies.items():
    end = first + hierarchy.num_leaves
    units = ", ".join(
        f"{hierarchy.num_units(k)} {level}"
        for k, level in enumerate(hierarchy.levels)
    )
    parts[part] = dataset.ArrayDataset(
        name=f"{found.listing.source.name}/{part}",
        images=images[first:end],
        hierarchy=hierarchy,
        description=(
            f"own data ({units}), {shape[0]} x {shape[1]} pixels, public seed"
            f" {seed}"
        ),
    )
    first = end
  return dataset.Splits(**parts)


def _image_shape(
    listing: listing_lib.Listing, size: int | None, color: bool | None
) -> tuple[int, int, int]:
  if size is not None and (
      not isinstance(size, (int, np.integer))
      or isinstance(size, bool)
      or not 1 <= size <= 4096
  ):
    raise ValueError(
        f"own_data option size={size!r} must be a whole number of pixels, 1 to"
        " 4096"
    )
  height, width, channels = listing.shape or (_SIZE, _SIZE, 1)
  if size is not None:
    height = width = int(size)
  if color is not None:
    channels = 3 if color else 1
  return height, width, channels


def _images(
    found: Survey, shape: tuple[int, int, int], root: pathlib.Path
) -> np.ndarray:
  """uint8[images, *shape], part after part: mapped, decoded where it is not."""
  listing = found.listing
  records = np.concatenate(
      [c.records for classes in found.parts.values() for c in classes]
  )
  digest = hashlib.sha256(
      f"1/{listing.source.resolve()}/{listing.fingerprint}/{shape}/".encode(
          errors="surrogateescape"
      )
      + np.ascontiguousarray(records, "<i8").tobytes()
  ).hexdigest()
  path = root / f"{digest[:32]}.npy"
  wanted = (len(records), *shape)

  def read() -> np.ndarray | None:
    return cache.map_array(path, wanted)

  def make() -> np.ndarray:
    _decode(listing, records, path, shape)
    images = read()
    if images is None:
      raise ValueError(
          f"{path} was written and cannot be read: see that the disk is sound,"
          " or choose another cache_dir"
      )
    return images

  images = read()
  if images is None:
    _make_private_folder(root)
    images = cache.read_or_make(root, read, make)
  return images


def _make_private_folder(root: pathlib.Path) -> None:
  """Makes a folder that its owner alone may read; ValueError if it cannot."""
  try:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=root):
      pass
  except OSError as e:
    raise ValueError(
        f"{root} cannot be written ({e.strerror}): choose another cache_dir"
        " (the environment variable TFDS_DATA_DIR)"
    ) from e


def _decode(
    listing: listing_lib.Listing,
    records: np.ndarray,
    path: pathlib.Path,
    shape: tuple[int, int, int],
) -> None:
  """Decodes all records to one shape, in order, into a new file."""
  read = listing.reader()
  seen: set[bytes] = set()
  try:
    with (
        cache.new_mapped_array(path, (len(records), *shape)) as images,
        futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool,
        tqdm.tqdm(
            total=len(records), unit="image", desc="decoding", disable=None
        ) as bar,
    ):

      def one(place: int) -> bytes:
        images[place] = pictures.fit(read(int(records[place])), shape)
        return hashlib.blake2b(images[place], digest_size=16).digest()

      for first in range(0, len(records), _BATCH):
        batch = range(first, min(first + _BATCH, len(records)))
        for digest in pool.map(one, batch):
          seen.add(digest)
          bar.update()
  except OSError as e:
    raise ValueError(
        f"{path.parent} cannot take the {len(records)} decoded images"
        f" ({e.strerror or e}): make room, or choose another cache_dir"
    ) from e
  copies = len(records) - len(seen)
  if copies:
    logging.warning(
        "%d images of %s have the same pixels as another one: each copy is a"
        " record of its own, and a guarantee for one '%s' covers one of them",
        copies, listing.source, listing.levels[-1],
    )

"""Your own data, from a folder tree, an NPZ or a table, as a data set.

A folder `class/image` or `group/class/image` (`folder`), an .npz with label
arrays (`npz`) or a .csv of files and labels (`manifest`) becomes the tree of
units that a guarantee speaks of. Examples are images, or features of one to
three axes; `rows` says what becomes of them.

What is public by assumption
----------------------------
The names of the units, how many records each holds, and which units are for
training, validation and test: they shape the plan, occur in messages and in
config.json, and no guarantee covers them. So are the shape and the type that
all examples share. The guarantee is about the examples of the training part.
Everything in validation and test is public.

Which units there are must not follow from the records, or a unit whose last
record is taken away would change how often all others are drawn. Every folder
is a unit, also an empty one; an .npz declares its units in an array `units`.
Without that array they are read off the records, and every guarantee below the
first level says that it assumes a list of them.

A record is one file, one page of a file of several, or one row. A copy under
another name is a record of its own: a guarantee for one record does not cover
adding or removing all copies.
"""

from collections.abc import Sequence
import dataclasses
import pathlib

import numpy as np

from episodic_dp import plan
from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import files
from episodic_dp.data.own_data import decoding
from episodic_dp.data.own_data import folder
from episodic_dp.data.own_data import listing as listing_lib
from episodic_dp.data.own_data import manifest
from episodic_dp.data.own_data import npz
from episodic_dp.data.own_data import rows


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Survey:
  """The records and their units, known before an example is read.

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
    by: str | None = None,
    crossing: str | None = None,
    seed: int = 0,
) -> Survey:
  """Lists and divides the data without reading an example or importing JAX.

  Args:
    data_dir: as for `load`, and so are the others.
    levels: names of the levels.
    shares: of training, validation and test.
    by: the level whose units are divided.
    crossing: the level whose units are one wherever their name occurs.
    seed: public seed of the division.

  Raises:
    FileNotFoundError: there is no such folder or file.
    ValueError: something in it cannot be used; one sentence that names it.
  """
  if data_dir is None:
    raise FileNotFoundError(
        "own_data needs data_dir: give --data_dir=PATH (in Python"
        " data_dir=PATH), a folder class/image or group/class/image, an .npz of"
        " arrays, or a .csv of files and labels"
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
  elif path.is_file() and path.suffix == ".csv":
    listing = manifest.listing(path, levels)
  elif path.exists():
    raise ValueError(
        f"{path} is neither a folder nor an .npz nor a .csv: give a folder"
        " tree, a file written by numpy.savez, or a table of files and labels"
    )
  else:
    raise FileNotFoundError(
        f"{path} does not exist: give a folder tree, an .npz or a .csv"
    )
  return divided(
      listing, shares=shares, by=by, crossing=crossing, seed=seed
  )


def divided(
    listing: listing_lib.Listing,
    *,
    shares: Sequence[float] | None = None,
    by: str | None = None,
    crossing: str | None = None,
    seed: int = 0,
) -> Survey:
  """Divides listed data, as `survey` does, and raises as it does."""
  parts = listing_lib.divide(
      listing, shares=shares, seed=seed, by=by, crossing=crossing
  )
  return Survey(
      listing=listing,
      parts=parts,
      hierarchies={
          part: listing_lib.hierarchy(
              listing.levels,
              classes,
              declared=listing.declared,
              crossing=crossing,
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
    depth: int | None = None,
    offset: float | Sequence[float] | None = None,
    scale: float | Sequence[float] | None = None,
    clip: Sequence[float] | None = None,
    shares: Sequence[float] | None = None,
    by: str | None = None,
    crossing: str | None = None,
    seed: int = 0,
    surveyed: Survey | None = None,
) -> dataset.Splits:
  """The three splits of your own data; their classes are disjoint.

  Examples are read once, with a progress bar, into a file that later runs map;
  it is made anew when a file of the source, or an option, changes. It holds all
  examples, so its folder is readable by its owner only.

  Args:
    data_dir: a folder tree (see `folder`), which may be divided into train/,
      validation/ and test/ at the top, or an .npz (see `npz`), which may say
      so in an array `split`.
    cache_dir: where what was read is kept, in own_data/; None means the
      environment variable TFDS_DATA_DIR, or else ~/tensorflow_datasets.
    levels: names of the levels, primary units first, examples last; None means
      class, image or group, class, image.
    size: height and width of images in pixels; None means 28, or those of an
      .npz.
    color: images in RGB (true) or grey; None means grey, or as in an .npz.
    depth: 8 for images of uint8, 16 for float32; None means the bits that they
      have, which must then be 8 in all or more than 8 in all.
    offset: a number to take away from float32 values, or one for each entry of
      their last axis. It is public, and never computed from the data.
    scale: likewise, to divide the difference by.
    clip: the least and the largest value that is kept of the quotient.
    shares: of the units for training, validation and test, where the source
      does not say; None means 0.6, 0.2, 0.2.
    by: the level whose whole units these are, units of one name together; None
      means the first.
    crossing: the second level, where units of one name under several primary
      units are one: a patient with images of several diagnoses. A guarantee for
      it covers all of them, and no such unit may be in two parts.
    seed: public seed of that division, 0 to 2^32 - 1.
    surveyed: of `survey` with these options, where it was made already.

  Returns:
    Splits with images uint8 (or, of more than 8 bits, float32 from 0 to 1)
    [rows, height, width, 1 or 3], or features float32[rows, ...] of one to
    three axes more; mapped from disk.

  Raises:
    FileNotFoundError: there is no such folder or file.
    ValueError: an option, a file or an array cannot be used; one sentence.
  """
  options = rows.options(
      size=size,
      color=color,
      depth=depth,
      offset=offset,
      scale=scale,
      clip=clip,
  )
  found = surveyed or survey(
      data_dir,
      levels=levels,
      shares=shares,
      by=by,
      crossing=crossing,
      seed=seed,
  )
  values = decoding.decoded(
      found.listing,
      np.concatenate(
          [c.records for classes in found.parts.values() for c in classes]
      ),
      options,
      cache.root(cache_dir) / "own_data",
  )
  shape = " x ".join(map(str, values.shape[1:]))
  parts, first = {}, 0
  for part, hierarchy in found.hierarchies.items():
    end = first + hierarchy.num_leaves
    units = ", ".join(
        f"{hierarchy.num_units(k)} {level}"
        for k, level in enumerate(hierarchy.levels)
    )
    parts[part] = dataset.ArrayDataset(
        name=f"{found.listing.source.name}/{part}",
        images=values[first:end],
        hierarchy=hierarchy,
        description=f"own data ({units}) of shape {shape}, public seed {seed}",
    )
    first = end
  return dataset.Splits(**parts)

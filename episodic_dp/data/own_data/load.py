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

from collections.abc import Mapping
import dataclasses
import pathlib
from typing import Any

import numpy as np

from episodic_dp import plain
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


def survey(data_dir: files.Path | None, options: rows.Options) -> Survey:
  """List and divide the data without reading an example or importing JAX.

  Args:
    data_dir: as for `load`.
    options: its levels, shares, by, crossing and seed are read.

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
  levels = options.levels
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
  parts = listing_lib.divide(
      listing,
      shares=options.shares,
      seed=options.seed,
      by=options.by,
      crossing=options.crossing,
  )
  return Survey(
      listing=listing,
      parts=parts,
      hierarchies={
          part: listing_lib.hierarchy(
              listing.levels,
              classes,
              declared=listing.declared,
              crossing=options.crossing,
          )
          for part, classes in parts.items()
      },
  )


def load(
    *,
    data_dir: files.Path | None = None,
    cache_dir: files.Path | None = None,
    surveyed: Survey | None = None,
    **chosen: Any,
) -> dataset.Splits:
  """Load the three splits of own data; their classes are disjoint.

  Examples are read once, with a progress bar, into a file that later runs map;
  it is made anew when a file of the source, or an option, changes. It holds all
  examples, so its folder is readable by its owner only.

  Args:
    data_dir: a folder tree (see `folder`), which may be divided into train/,
      validation/ and test/ at the top, an .npz (see `npz`), which may say so in
      an array `split`, or a .csv (see `manifest`).
    cache_dir: where what was read is kept, in own_data/; None means the
      environment variable TFDS_DATA_DIR, or else ~/tensorflow_datasets.
    surveyed: of `survey` with these options, where it was made already.
    **chosen: fields of `rows.Options`.

  Returns:
    Splits with images uint8 (or, of more than 8 bits, float32 from 0 to 1)
    [rows, height, width, 1 or 3], or features float32[rows, ...] of one to
    three axes more; mapped from disk.

  Raises:
    FileNotFoundError: there is no such folder or file.
    ValueError: an option, a file or an array cannot be used; one sentence.
  """
  options = read_options(chosen)
  found = surveyed or survey(data_dir, options)
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
        description=(
            f"own data ({units}) of shape {shape}, public seed {options.seed}"
        ),
    )
    first = end
  return dataset.Splits(**parts)


def read_options(chosen: Mapping[str, Any]) -> rows.Options:
  """Return the options of a config; PlanError names what is wrong."""
  return plain.from_plain(
      rows.Options, chosen, name="config.data.options", partial=True
  )

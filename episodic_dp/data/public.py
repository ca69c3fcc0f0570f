"""Public examples, whose moments normalise the examples of a metric learner."""

import jax
import numpy as np
from PIL import Image

from episodic_dp import backends
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.data import glyphs
from episodic_dp.data import scenes
from episodic_dp.data.own_data import rows

COUNT = 200
_GENERATORS = {1: glyphs.characters, 3: scenes.scenes}  # By channels.


def examples(
    validation: dataset_lib.Dataset | None, shape: tuple[int, ...]
) -> np.ndarray | None:
  """Return public examples as a network takes them.

  Args:
    validation: public data of the same kind, whose examples are taken at equal
      distances; None for generated images, those of the public starts.
    shape: shape of an example.

  Returns:
    float32[`COUNT` or fewer, *shape]; None for a shape without a generator.
  """
  if validation is not None:
    images = validation.images
    chosen = np.linspace(0, len(images) - 1, min(COUNT, len(images)))
    found = np.asarray(images[chosen.astype(int)])
  elif len(shape) == 3 and shape[2] in _GENERATORS:
    draw = backends.jit(_GENERATORS[shape[2]], static_argnums=(1, 2))
    drawn = np.asarray(draw(jax.random.key(0), COUNT // 2, 2))
    how = Image.Resampling.BILINEAR
    images = drawn.reshape(COUNT, *drawn.shape[2:])
    found = np.stack([rows.resized(image, shape, how) for image in images])
  else:
    return None
  return rows.scaled(found)

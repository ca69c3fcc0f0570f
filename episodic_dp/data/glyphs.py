"""The built-in data: thousands of participants who each write a small script.

Every participant has a separate script of glyphs and draws each glyph several
times. A glyph is one to three smooth strokes (cubic Bezier curves with random
control points). All drawings of a participant share the writer's hand (slant,
size, thickness, stretch). Every drawing has a different tremor and a different
small rotation, shear, stretch and shift. Paper is 255 and ink is 0, as in
Omniglot; edges are anti-aliased.

Everything follows from a *public* seed. Participant i of a split is a pure
function of (seed, split, i), so a larger set contains the smaller one, and the
test split does not change with the size of the training split.
"""

from concurrent import futures
import functools

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import backends
from episodic_dp.data import cache
from episodic_dp.data import dataset
from episodic_dp.data import originals
from episodic_dp.data import pools
from episodic_dp.data.pools import Glyphs

_STROKES = 3  # At most; a glyph uses 1, 2 or 3 of them.
_POINTS = 24  # Samples along each stroke.
_CHUNK = 16  # Participants rendered per call: bounds the working memory.
_SHAPE_NUMBERS = 8 * _STROKES + 1 + _STROKES - 1  # Points, count, joins.
_HAND_NUMBERS = 5
_DRAWING_NUMBERS = 8 * _STROKES + 7  # Tremor of each point; place and pen.


def load(options: Glyphs, where: originals.Where) -> dataset.Splits:
  """Generate the three splits, which share no participant.

  Returns:
    Splits whose hierarchies are participant -> glyph -> drawing, declared by
    the options, with images
    uint8[participants * glyphs * drawings, size, size, 1]. The same options
    give the same bits on the same platform.
  """

  def make_part(number: int, count: int) -> dataset.ArrayDataset:
    return dataset.ArrayDataset(
        name=f"glyphs/{dataset.PARTS[number]}",
        images=_generate(options, number, count),
        hierarchy=options.hierarchy(count),
    )

  return pools.generate(options, make_part)


def _generate(options: Glyphs, part: int, participants: int) -> np.ndarray:
  """Return uint8[participants * glyphs * drawings, size, size, 1]."""
  backends.ask_for_cores()
  glyphs, drawings, size = options.glyphs, options.drawings, options.size
  images = np.empty((participants, glyphs * drawings, size, size), np.uint8)
  key = jax.random.wrap_key_data(
      jnp.asarray([options.seed, part], jnp.uint32), impl="threefry2x32"
  )
  # The host's processor, so that the bits do not depend on the accelerator. A
  # committed key takes the computation there, in every thread.
  key = jax.device_put(key, _host())

  def render(first: int) -> None:
    ids = np.arange(first, first + _CHUNK, dtype=np.uint32)
    chunk = _render_participants(
        key, ids, glyphs=glyphs, drawings=drawings, size=size
    )
    wanted = images[first : first + _CHUNK]
    wanted[:] = np.asarray(chunk)[: len(wanted)]

  # One chunk keeps one core busy; a few threads use the others.
  with futures.ThreadPoolExecutor(cache.THREADS) as pool:
    list(pool.map(render, range(0, participants, _CHUNK)))
  return images.reshape(-1, size, size, 1)


def characters(key: jax.Array, classes: int, count: int) -> jax.Array:
  """Draw random glyphs, each drawing by a different hand.

  Args:
    key: public key.
    classes: number of glyphs.
    count: number of drawings of each.

  Returns:
    uint8[classes, count, 28, 28, 1].
  """
  of_shape, of_hand, of_drawing = jax.random.split(key, 3)
  uniform = jax.random.uniform(
      of_shape, (classes, _SHAPE_NUMBERS), minval=-1.0, maxval=1.0
  )
  hands = jax.random.normal(of_hand, (classes, count, _HAND_NUMBERS))
  normal = jax.random.normal(of_drawing, (classes, count, _DRAWING_NUMBERS))
  draw = jax.vmap(_drawing, in_axes=(0, None, None, None, 0))
  paths = jax.vmap(draw)(normal, *jax.vmap(_shape)(uniform), hands)
  return jax.lax.map(lambda path: _ink(*path, size=28), paths)[..., None]


def _host() -> jax.Device:
  try:
    return jax.local_devices(backend="cpu")[0]
  except RuntimeError:  # JAX was started without its CPU backend.
    return jax.local_devices()[0]


@functools.partial(jax.jit, static_argnames=("glyphs", "drawings", "size"))
def _render_participants(
    key: jax.Array,
    ids: np.ndarray,
    *,
    glyphs: int,
    drawings: int,
    size: int,
) -> jax.Array:
  """Render uint8[ids, glyphs * drawings, size, size]."""
  points, weights, sigma = jax.vmap(
      lambda i: _participant(
          jax.random.fold_in(key, i), glyphs=glyphs, drawings=drawings
      )
  )(ids)
  lead = (ids.shape[0], glyphs * drawings)
  paths = (
      points.reshape(*lead, -1, 2),
      weights.reshape(*lead, -1),
      sigma.reshape(lead),
  )
  return jax.lax.map(lambda path: _ink(*path, size=size), paths)


def _participant(
    key: jax.Array, *, glyphs: int, drawings: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Return the pen's path for all drawings of one participant.

  Returns:
    points float32[glyphs, drawings, strokes * points, 2] in [-1, 1] (x, y), the
    length that each point represents [glyphs, drawings, strokes * points], and
    the pen's width [glyphs, drawings].
  """
  # All random numbers in one call: compiling several takes seconds.
  split = glyphs * _SHAPE_NUMBERS
  total = split + _HAND_NUMBERS + glyphs * drawings * _DRAWING_NUMBERS
  above = np.nextafter(np.float32(-1), np.float32(0))
  uniform = jax.random.uniform(key, (total,), minval=above, maxval=1.0)
  normal = np.float32(np.sqrt(2)) * jax.lax.erf_inv(uniform[split:])
  uniform = uniform[:split].reshape(glyphs, _SHAPE_NUMBERS)
  hand, normal = normal[:_HAND_NUMBERS], normal[_HAND_NUMBERS:]
  normal = normal.reshape(glyphs, drawings, _DRAWING_NUMBERS)
  control, basis, used = jax.vmap(_shape)(uniform)
  draw = jax.vmap(
      jax.vmap(_drawing, in_axes=(0, None, None, None, None)),
      in_axes=(0, 0, 0, 0, None),
  )
  return draw(normal, control, basis, used, hand)


def _shape(uniform: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Return one glyph from float32[_SHAPE_NUMBERS], uniform between -1 and 1.

  Returns:
    control points [strokes, 4, 2], the Bernstein basis at the points along
    each stroke [strokes, points, 4], and used strokes bool[strokes].
  """
  control = uniform[: 8 * _STROKES].reshape(_STROKES, 4, 2)
  # One stroke in 15 %, two in 45 %, three in 40 % of all glyphs.
  u = uniform[8 * _STROKES]
  count = 1 + (u > -0.7).astype(jnp.int32) + (u > 0.2).astype(jnp.int32)
  # Half of the strokes start at the end of the previous one, as in a script.
  join = uniform[8 * _STROKES + 1 :] < 0.0
  for s in range(1, _STROKES):
    start = jnp.where(join[s - 1], control[s - 1, 3], control[s, 0])
    control = control.at[s, 0].set(start)
  used = jnp.arange(_STROKES) < count
  # Glyphs fill the same square, so that size and place carry no information.
  basis = _even_basis(control)
  path = jnp.einsum("spc,scj->spj", basis, control)
  hidden = ~used[:, None, None]
  low = jnp.where(hidden, jnp.inf, path).min((0, 1))
  high = jnp.where(hidden, -jnp.inf, path).max((0, 1))
  scale = 1.5 / jnp.maximum((high - low).max(), 0.5)
  return (control - (low + high)[None, None] / 2) * scale, basis, used


def _even_basis(control: jax.Array) -> jax.Array:
  """Return the Bernstein basis at evenly spaced points of each stroke.

  Even spacing (of the undisturbed glyph) keeps thin, fast strokes from falling
  apart into dots.
  """
  even = np.linspace(0.0, 1.0, _POINTS, dtype=np.float32)
  path = jnp.einsum("pc,scj->spj", _bernstein(even), control)
  step = jnp.sqrt((jnp.diff(path, axis=1) ** 2).sum(-1)) + 1e-6
  reached = jnp.cumsum(step, axis=1) / step.sum(1, keepdims=True)
  share = step / step.sum(1, keepdims=True)
  # The inverse of the piecewise linear map t -> length, without a search: each
  # piece adds its part of t in proportion to the length reached in it.
  within = (even[None, :, None] - (reached - share)[:, None]) / share[:, None]
  return _bernstein(jnp.clip(within, 0.0, 1.0).sum(-1) / (_POINTS - 1))


def _bernstein(t: jax.Array | np.ndarray) -> jax.Array:
  """Return the cubic Bernstein polynomials [..., 4] at t [...]."""
  u = 1 - t
  return jnp.stack([u**3, 3 * t * u**2, 3 * t**2 * u, t**3], axis=-1)


def _drawing(
    normal: jax.Array,
    control: jax.Array,
    basis: jax.Array,
    used: jax.Array,
    hand: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Return one drawing of a glyph; `normal` and `hand` are standard normal."""
  tremor, place = normal[: control.size], normal[control.size :]
  control = control + 0.08 * tremor.reshape(control.shape)
  angle = 0.06 * hand[0] + 0.16 * place[0]
  slant = 0.22 * hand[1] + 0.10 * place[1]
  width = jnp.exp(0.08 * hand[2] + 0.08 * place[2])
  height = jnp.exp(0.08 * hand[3] + 0.08 * place[3])
  path = jnp.einsum("spc,scj->spj", basis, control)
  # Stretch and slant, then turn, then shift.
  x = width * path[..., 0] + slant * height * path[..., 1]
  y = height * path[..., 1]
  cos, sin = jnp.cos(angle), jnp.sin(angle)
  path = jnp.stack([cos * x - sin * y, sin * x + cos * y], axis=-1)
  path = path + 0.09 * place[None, None, 4:6]
  # A point represents half the distance between its two neighbours.
  step = jnp.diff(path, axis=1, prepend=path[:, :1], append=path[:, -1:])
  step = jnp.sqrt((step**2).sum(-1))
  length = 0.5 * (step[:, 1:] + step[:, :-1]) * used[:, None].astype(step.dtype)
  sigma = 0.058 * jnp.exp(0.16 * hand[4] + 0.06 * place[6])
  return path.reshape(-1, 2), length.reshape(-1), sigma


def _ink(
    points: jax.Array, lengths: jax.Array, sigma: jax.Array, *, size: int
) -> jax.Array:
  """Draw uint8[drawings, size, size] from points [drawings, points, 2].

  Each point spreads its ink as a Gaussian, which is separable: one small matrix
  product per drawing. Along a stroke the sum is a ridge of height one, whatever
  the pen's speed. A smooth threshold turns it into an even line with soft
  edges, and crossings stay as thin as the strokes.
  """
  centres = (np.arange(size, dtype=np.float32) + 0.5) * (2 / size) - 1
  centres = centres[None, None]
  spread = 1 / (2 * sigma**2)
  # Each coordinate by itself: together they take 2.5 times as long.
  across, down = (
      jnp.exp(-((points[..., i, None] - centres) ** 2) * spread[:, None, None])
      for i in (0, 1)
  )
  down = down * (lengths / (sigma[:, None] * np.sqrt(2 * np.pi)))[..., None]
  field = jnp.einsum("dpy,dpx->dyx", down, across)
  edge = jnp.clip((field - 0.25) / 0.5, 0.0, 1.0)
  ink = edge * edge * (3 - 2 * edge)
  return jnp.round(255 * (1 - ink)).astype(jnp.uint8)

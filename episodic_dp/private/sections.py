"""Named parts of a step as it was traced, and a digest of each.

A step is one program, and who compares two runs must know whether both compute
the same. What counts is what was traced, not what the objects say that made it:
a learner may hold any function. So the parts of a step that others provide are
functions with a name, which stay whole in the traced step (as `jax.jit` inside
`jax.jit` does; XLA inlines them) and are found there again, on one device, on
many, and for data on the host. Their digests need no trace of their own and
cannot be set apart from what runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import enum
import hashlib
import itertools
import re
from typing import Any, ParamSpec, TypeVar

import jax
from jax.extend import core
import numpy as np

_P = ParamSpec("_P")
_R = TypeVar("_R")

SAMPLER, LEARNER, NOISE, OPTIMIZER = (
    f"episodic_dp_{name}"
    for name in ("sampler", "learner", "noise", "optimizer")
)
NAMES = (SAMPLER, LEARNER, NOISE, OPTIMIZER)

# Where an equation says on which devices, or under which name: that differs
# between machines that compute the same.
_IGNORED = frozenset({
    "name", "mesh", "ctx_mesh", "sharding", "in_shardings", "out_shardings",
    "out_sharding", "in_layouts", "out_layouts", "donated_invars",
    "keep_unused", "inline", "compiler_options_kvs", "debug", "debug_info",
})  # fmt: skip
# Of arrays that move between devices and stay what they are.
_MOVES = frozenset({"reshard", "sharding_constraint", "pvary", "pcast"})
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def section(name: str, function: Callable[_P, _R]) -> Callable[_P, _R]:
  """The function as a named part of whatever it is traced in.

  Args:
    name: one of `NAMES`.
    function: of arrays; may close over others, traced or not.
  """

  def named(*args: _P.args, **kwargs: _P.kwargs) -> _R:
    return function(*args, **kwargs)

  named.__name__ = name
  return jax.jit(named)


def section_digests(programs: Sequence[core.ClosedJaxpr]) -> dict[str, str]:
  """Name -> digest of that part of a step.

  Args:
    programs: what the step consists of (`traced` of a step).
  """
  found: dict[str, set[str]] = {name: set() for name in NAMES}
  walk = _Walk()
  for program in programs:
    for name, part in _sections(program.jaxpr):
      found[name].add(walk.closed(part))
  return {
      name: hashlib.sha256("".join(sorted(parts)).encode()).hexdigest()
      for name, parts in found.items()
  }


def function_digest(function: Callable[..., Any], *arguments: Any) -> str:
  """Digest of a function as it is traced.

  Args:
    function: of arrays.
    *arguments: arrays, or their shapes and dtypes.
  """
  return _Walk().closed(jax.make_jaxpr(function)(*arguments))


def _sections(jaxpr: core.Jaxpr) -> Iterator[tuple[str, core.ClosedJaxpr]]:
  """Every named part inside a program, with its name."""
  for equation in jaxpr.eqns:
    name = equation.params.get("name")
    if name in NAMES:
      yield name, equation.params["jaxpr"]
      continue
    for value in equation.params.values():
      for inner in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(inner, core.ClosedJaxpr):
          yield from _sections(inner.jaxpr)
        elif isinstance(inner, core.Jaxpr):
          yield from _sections(inner)


class _Walk:
  """Digests of programs; one that occurs several times is read once."""

  def __init__(self) -> None:
    self._known: dict[int, tuple[Any, str]] = {}

  def closed(self, program: core.ClosedJaxpr) -> str:
    """Of a program and the constants that it holds."""
    return self._once(
        program,
        lambda: _hash(
            self.open(program.jaxpr),
            *(_array(constant) for constant in program.consts),
        ),
    )

  def open(self, jaxpr: core.Jaxpr) -> str:
    """Of a program whose constants are arguments."""
    return self._once(jaxpr, lambda: _hash(*self._lines(jaxpr)))

  def _once(self, key: Any, make: Callable[[], str]) -> str:
    if id(key) not in self._known:
      # The object is kept: another one could get its id.
      self._known[id(key)] = key, make()
    return self._known[id(key)][1]

  def _lines(self, jaxpr: core.Jaxpr) -> Iterator[str]:
    """A line for each equation, its variables numbered as they appear."""
    names: dict[Any, str] = {}
    count = itertools.count()

    def new(variable: Any) -> str:
      names[variable] = str(next(count))
      return f"{names[variable]}:{_type(variable.aval)}"

    def used(atom: Any) -> str:
      if isinstance(atom, core.Literal):
        return f"{_array(atom.val)}:{_type(atom.aval)}"
      return names[atom]

    yield " ".join(new(v) for v in (*jaxpr.constvars, *jaxpr.invars))
    for equation in jaxpr.eqns:
      if equation.primitive.name in _MOVES:
        for before, after in zip(equation.invars, equation.outvars):
          names[after] = used(before)
        continue
      inputs = " ".join(map(used, equation.invars))
      params = self._plain({
          k: v for k, v in equation.params.items() if k not in _IGNORED
      })
      outputs = " ".join(map(new, equation.outvars))
      yield f"{outputs} = {equation.primitive.name} {params} {inputs}"
    yield " ".join(map(used, jaxpr.outvars))

  def _plain(self, value: Any) -> str:
    """What a parameter of an equation is, without addresses."""
    if isinstance(value, core.ClosedJaxpr):
      return self.closed(value)
    if isinstance(value, core.Jaxpr):
      return self.open(value)
    if isinstance(value, (np.ndarray, jax.Array)):
      return _array(value)
    if isinstance(value, enum.Enum):
      return str(value)
    if isinstance(value, Mapping):
      items = sorted(value.items(), key=lambda item: str(item[0]))
      return str([(str(k), self._plain(v)) for k, v in items])
    if isinstance(value, (tuple, list)):
      return str([type(value).__name__, *map(self._plain, value)])
    if callable(value) and not isinstance(value, type):
      # How it is differentiated or batched further, which is done by now.
      return getattr(value, "__name__", type(value).__name__)
    return _ADDRESS.sub("", repr(value))


def _type(aval: Any) -> str:
  """Dtype and shape; not which axes of a mesh it differs along."""
  dtype, shape = getattr(aval, "dtype", aval), getattr(aval, "shape", "")
  return f"{dtype}{shape}{'~' * bool(getattr(aval, 'weak_type', False))}"


def _array(value: Any) -> str:
  """A constant: small ones as they are, others as a digest of their bytes."""
  if isinstance(value, (bool, int, float, complex, str)):
    return f"{type(value).__name__} {value!r}"
  if isinstance(value, jax.Array) and jax.dtypes.issubdtype(
      value.dtype, jax.dtypes.prng_key
  ):
    value = jax.random.key_data(value)
  array = np.asarray(value)
  if array.dtype.hasobject:
    return _ADDRESS.sub("", repr(value))
  digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
  return f"{array.dtype}{array.shape}{digest}"


def _hash(*texts: str) -> str:
  total = hashlib.sha256()
  for text in texts:
    total.update(text.encode() + b"\n")
  return total.hexdigest()

"""Dataclasses as plain data for JSON: written in full, read strictly.

`to_plain` writes a dataclass as an object of its fields, and `from_plain` reads
it back by the types of these fields. The dataclass is the only description of
the format. A field that is unknown, missing or of another type raises PlanError
with a text such as `plan.stages=7: expected a list`.

Floats are equal to the last bit; infinity is the text "inf".
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import dataclasses
import functools
import math
import numbers
import types
import typing
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

from episodic_dp import _validate
from episodic_dp.errors import PlanError

_T = TypeVar("_T")

# Types of fields with a range.
Count: TypeAlias = Annotated[int, functools.partial(_validate.count, least=1)]
Whole: TypeAlias = Annotated[int, _validate.count]
Positive: TypeAlias = Annotated[float, _validate.positive]
NotNegative: TypeAlias = Annotated[
    float, functools.partial(_validate.positive, zero=True)
]
Fraction: TypeAlias = Annotated[float, _validate.fraction]
Rate: TypeAlias = Annotated[float, _validate.positive, _validate.probability]

_SCALARS: dict[Any, str] = {
    bool: "true or false",
    float: "a number",
    int: "a whole number",
    str: "text",
}
# Types of numbers that NumPy's belong to, too.
_NUMBERS = {float: numbers.Real, int: numbers.Integral}
_AS_THEY_ARE = (int, str, bool, type(None))  # In lists, which may be long.


class _Form(NamedTuple):
  """The form in which the values of a type are written.

  Attributes:
    kind: type of the form, such as a dataclass; Any for text.
    write: value -> form.
    read: form -> value; raises PlanError.
  """

  kind: Any
  write: Callable[[Any], Any]
  read: Callable[[Any], Any]


_FORMS: dict[Any, _Form] = {}
# Dataclass -> types of its fields.
_hints: Callable[[Any], dict[str, Any]] = functools.cache(
    functools.partial(typing.get_type_hints, include_extras=True)
)


def register(
    kind: Any,
    form: Any,
    write: Callable[[Any], Any],
    read: Callable[[Any], Any],
) -> None:
  """Register a type, or a union of types, that is written in another form.

  Args:
    kind: the type, as in the annotations of fields.
    form: type of the form, such as a dataclass; Any for text.
    write: value -> form.
    read: form -> value; raises PlanError.
  """
  _FORMS[kind] = _Form(form, write, read)


def _in_its_form(value: Any) -> Any:
  """Return a value, or its form if its type has one."""
  for kind, form in _FORMS.items():
    if isinstance(value, kind):
      return form.write(value)
  return value


def to_plain(value: Any) -> Any:
  """Return the dicts, lists, numbers and text that `from_plain` reads.

  Raises:
    TypeError: a value has no form as plain data.
  """
  value = _in_its_form(value)
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    names = [field.name for field in fields(value)]
    return {name: to_plain(getattr(value, name)) for name in names}
  if value is None or isinstance(value, (bool, str)):
    return value
  if isinstance(value, numbers.Real):
    if isinstance(value, numbers.Integral):
      return int(value)
    if not math.isfinite(value):
      return repr(float(value))
    return float(value)
  if isinstance(value, Mapping):
    return {str(key): to_plain(part) for key, part in value.items()}
  if isinstance(value, Sequence):
    return [p if type(p) in _AS_THEY_ARE else to_plain(p) for p in value]
  raise TypeError(f"{value!r} cannot be written as plain data")


def from_plain(
    kind: type[_T], data: Any, *, name: str, partial: bool = False
) -> _T:
  """Build a dataclass from plain data.

  Args:
    kind: the dataclass. Its fields are numbers, text, Literals, tuples,
      mappings from text, dataclasses, types with `register`, and unions of
      these. Callable metadata of `Annotated` check the value, as
      `_validate.count` does.
    data: the result of `to_plain`, perhaps through JSON; or an object of the
      dataclass, whose fields are checked.
    name: name of the data, for messages.
    partial: whether missing fields take their defaults.

  Raises:
    PlanError: names the field that is missing, unknown or of another type.
  """
  if isinstance(data, kind):
    read_again = read_fields(data, name=name)
    return dataclasses.replace(data, **read_again)  # type: ignore[type-var]
  hints = _hints(kind)
  known = [field.name for field in fields(kind)]
  given = dict(check_names(data, known, name=name))
  optional = defaults(kind) if partial else {}
  for key in known:
    if key not in given and key not in optional:
      raise PlanError(f"{name}.{key} is missing: set it")
  values = {
      key: read(hints[key], part, name=f"{name}.{key}", partial=partial)
      for key, part in given.items()
  }
  return kind(**values)


def form_of(kind: Any) -> Any:
  """Return the type of the form in which a type is written, or the type."""
  if kind in _FORMS:
    return _FORMS[kind].kind
  return kind


def read_fields(value: Any, *, name: str) -> dict[str, Any]:
  """Return the fields of a dataclass, each read by its type.

  Args:
    value: the dataclass, whose fields are objects or plain data.
    name: name of the dataclass, for messages.

  Raises:
    PlanError: names the field that is of another type.
  """
  hints = _hints(type(value))
  return {
      field.name: read(
          hints[field.name], getattr(value, field.name),
          name=f"{name}.{field.name}", partial=True,
      )
      for field in fields(value)
  }


def with_changes(value: _T, changes: Mapping[str, Any], *, name: str) -> _T:
  """Return a dataclass with other values of some fields, read by their types.

  Args:
    value: the dataclass.
    changes: name of a field, or path such as "mechanism.clip_norm" -> value, or
      its plain data. A text given for a list is its only element.
    name: name of the dataclass, for messages.

  Raises:
    PlanError: names the field that is unknown or of another type.
  """
  values: dict[str, Any] = {}
  inner: dict[str, dict[str, Any]] = {}
  if not isinstance(changes, Mapping):
    raise _validate.refusal(
        f"changes of {name}", changes, "a mapping of fields to values"
    )
  for path, new in changes.items():
    field, dot, rest = str(path).partition(".")
    if dot:
      inner.setdefault(field, {})[rest] = new
    else:
      values[field] = new
  known = [field.name for field in fields(value)]
  check_names(inner | values, known, name=name)
  for field, parts in inner.items():
    held = values.get(field, getattr(value, field))
    values[field] = _with_parts(held, parts, name=f"{name}.{field}")
  hints = _hints(type(value))
  for field, new in values.items():
    if isinstance(new, str) and isinstance(getattr(value, field), tuple):
      new = (new,)
    values[field] = read(
        hints[field], new, name=f"{name}.{field}", partial=True
    )
  return dataclasses.replace(value, **values)  # type: ignore[type-var]


def _with_parts(held: Any, parts: Mapping[str, Any], *, name: str) -> Any:
  """Return a field with some parts changed; the parts if it had none."""
  held = _in_its_form(held)
  if dataclasses.is_dataclass(held):
    return with_changes(held, parts, name=name)
  if not isinstance(held, Mapping):
    return parts
  changed = dict(held)
  for path, new in parts.items():
    field, dot, rest = path.partition(".")
    if dot:
      new = _with_parts(changed.get(field), {rest: new}, name=name)
    changed[field] = new
  return changed


def defaults(kind: Any) -> dict[str, Any]:
  """Return the fields of a dataclass that have a default, as plain data."""
  found = {}
  for field in fields(kind):
    if field.default_factory is not dataclasses.MISSING:
      found[field.name] = to_plain(field.default_factory())
    elif field.default is not dataclasses.MISSING:
      found[field.name] = to_plain(field.default)
  return found


def fields(kind: Any) -> list[dataclasses.Field[Any]]:
  """Return the fields of a dataclass without those of metadata plain=False."""
  return [
      field
      for field in dataclasses.fields(kind)
      if field.metadata.get("plain", True)
  ]


def check_names(
    data: Any, names: Sequence[str], *, name: str
) -> Mapping[str, Any]:
  """Return the data if it is an object with no other keys than the names."""
  if not isinstance(data, Mapping):
    raise _validate.refusal(
        name, data, f"an object with {', '.join(names)}"
    )
  for key in data:
    if key not in names:
      where = f"{name}[{key!r}]"
      if isinstance(key, str) and key.isprintable():
        where = f"{name}.{key}"
      raise _validate.refusal(
          where[:100], data[key], f"one of the fields {', '.join(names)}"
      )
  return data


def read(kind: Any, data: Any, *, name: str, partial: bool = False) -> Any:
  """Return a value of any type that a field can have; see `from_plain`."""
  again = functools.partial(read, partial=partial)
  if kind in _FORMS:
    form = _FORMS[kind]
    if isinstance(data, kind):
      return data
    return form.read(again(form.kind, data, name=name))
  origin, arguments = typing.get_origin(kind), typing.get_args(kind)
  if origin is Annotated:
    value = again(arguments[0], data, name=name)
    for check in filter(callable, arguments[1:]):
      value = check(name, value)
    return value
  if origin in (typing.Union, types.UnionType):
    return _read_union(arguments, data, name, again)
  if origin is Literal:
    return _validate.one_of(name, data, arguments)
  if origin is tuple:
    return _read_tuple(arguments, data, name, again)
  if isinstance(origin, type) and issubclass(origin, Mapping):
    if not isinstance(data, Mapping):
      raise _validate.refusal(name, data, "an object")
    return {
        str(key): again(arguments[1], part, name=f"{name}.{key}")
        for key, part in data.items()
    }
  if dataclasses.is_dataclass(kind):
    return from_plain(
        typing.cast(type, kind), data, name=name, partial=partial
    )
  if kind is Any:
    return data
  return _read_scalar(kind, data, name)


def _read_union(
    members: Sequence[Any], data: Any, name: str, again: Callable[..., Any]
) -> Any:
  """Return the value by the first type that can read it."""
  if data is None and type(None) in members:
    return None
  *others, last = (kind for kind in members if kind is not type(None))
  for kind in others:
    with contextlib.suppress(PlanError):
      return again(kind, data, name=name)
  return again(last, data, name=name)


def _read_tuple(
    members: Sequence[Any], data: Any, name: str, again: Callable[..., Any]
) -> tuple[Any, ...]:
  if not is_list(data):
    raise _validate.refusal(name, data, "a list")
  if members[-1] is Ellipsis:
    members = [members[0]] * len(data)
  if len(members) != len(data):
    raise _validate.refusal(name, data, f"a list of {len(members)}")
  return tuple(
      again(kind, part, name=f"{name}[{i}]")
      for i, (kind, part) in enumerate(zip(members, data))
  )


def _read_scalar(kind: Any, data: Any, name: str) -> Any:
  if kind is float and data == "inf":
    return math.inf
  allowed = _NUMBERS.get(kind, kind)
  if isinstance(data, allowed) and isinstance(data, bool) == (kind is bool):
    with contextlib.suppress(OverflowError):  # Raised by a huge integer.
      if kind is not float or not math.isnan(data):
        return kind(data)
  raise _validate.refusal(name, data, _SCALARS[kind])


def is_list(data: object) -> bool:
  """Return whether the data are a list or a tuple."""
  return isinstance(data, Sequence) and not isinstance(data, (str, bytes))

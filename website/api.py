"""What the API reference shows beyond what Griffe reads in the code."""

from typing import Any

import griffe


class Complete(griffe.Extension):
  """Functions that a module hides, and the fields of named tuples."""

  def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
    """Puts back what `__all__` names and a module of that name hides.

    `from episodic_dp.models.networks import conv4` makes `models.conv4` a
    function, though a module `episodic_dp/models/conv4.py` stands beside it.
    """
    for package in pkg.modules.values():
      for name in map(str, package.exports or ()):
        hides = package.members.get(name)
        if isinstance(hides, griffe.Module) and name in package.imports:
          # Beside the module, which keeps its name.
          package.members[f"{name}()"] = griffe.Alias(
              name, package.imports[name], parent=package
          )

  def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
    """Gives a named tuple the signature that Griffe gives dataclasses."""
    if "NamedTuple" in map(str, cls.bases):
      fields = [
          griffe.Parameter(
              field.name, annotation=field.annotation, default=field.value,
              kind=griffe.ParameterKind.positional_or_keyword,
          )
          for field in cls.attributes.values() if field.annotation
      ]  # fmt: skip
      cls.set_member(
          "__init__",
          griffe.Function("__init__", parameters=griffe.Parameters(*fields)),
      )

"""Stages as text, such as 'Poisson(0.004)': parsed, never run."""

import ast
import dataclasses
import math
import typing
from typing import Any

from episodic_dp import errors
from episodic_dp import plain
from episodic_dp.plan import stages as stages_lib

# Name -> stage; each is a dataclass of at most one number.
_STAGES = {stage.__name__: stage for stage in typing.get_args(stages_lib.Stage)}


def stage_text(stage: stages_lib.Stage) -> str:
  """Write 'FixedSize(5)', 'Poisson(0.004)' or 'All()'.

  Numbers are written in full, so that the stage that `parse_stage` reads is
  the same to the last bit.
  """
  values = [
      repr(field.type(getattr(stage, field.name)))  # type: ignore[operator]
      for field in dataclasses.fields(stage)
  ]
  return f"{type(stage).__name__}({', '.join(values)})"


def parse_stage(text: str) -> stages_lib.Stage:
  """Read 'FixedSize(5)', 'Poisson(0.004)', 'Poisson(8/30)' or 'All()'.

  The text is parsed, never run: a name, and at most one number or quotient.

  Raises:
    PlanError: names the text and what is allowed.
  """
  wrong = errors.PlanError(
      f"stage {errors.shown(text)} is not understood: write {_forms()} with a"
      " number, such as 'FixedSize(5)', 'Poisson(0.004)' or 'Poisson(8/30)'"
  )
  if not isinstance(text, str) or len(text) > 100:
    raise wrong
  try:
    call = ast.parse(text.strip(), mode="eval").body
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    raise wrong from None
  if not (
      isinstance(call, ast.Call)
      and isinstance(call.func, ast.Name)
      and call.func.id in _STAGES
  ):
    raise wrong
  stage = _STAGES[call.func.id]
  fields = dataclasses.fields(stage)
  names = [field.name for field in fields]
  values = list(call.args)
  for keyword in call.keywords:
    if keyword.arg not in names:
      raise wrong
    values.append(keyword.value)
  if len(values) != len(fields):
    raise wrong
  numbers = [_number(value) for value in values]
  for field, number in zip(fields, numbers):
    if number is None or (field.type is int and not isinstance(number, int)):
      raise wrong
  return stage(*numbers)


def _forms() -> str:
  """The stages as they are written: 'FixedSize(n), Poisson(p) or All()'."""
  forms = [
      f"{name}({', '.join(field.name for field in dataclasses.fields(stage))})"
      for name, stage in _STAGES.items()
  ]
  return f"{', '.join(forms[:-1])} or {forms[-1]}"


def _number(node: ast.AST) -> int | float | None:
  """The value of a number or of a quotient of two; None for all else."""
  if isinstance(node, ast.Constant):
    value: Any = node.value
    is_bool = isinstance(value, bool)
    return value if isinstance(value, (int, float)) and not is_bool else None
  if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
    value = _number(node.operand)
    return None if value is None else -value
  if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
    top, bottom = _number(node.left), _number(node.right)
    if top is None or not bottom:
      return None
    value = top / bottom
    return value if math.isfinite(value) else None
  return None


plain.register_text(stages_lib.Stage, stage_text, parse_stage)

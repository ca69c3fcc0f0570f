"""Write the model card of an exported folder, README.md for Hugging Face.

Every number in it is read from model.json, the privacy statement or the result
of `episodic-dp evaluate`.
"""

from collections.abc import Mapping
import json
import math
from typing import Any

from episodic_dp.accounting import report
from episodic_dp.export import folder
from episodic_dp.export.folder import Description
from episodic_dp.output import tables

_ADAPTED = "\n## Adapted with privacy"

Scores = Mapping[str, Any]
"""The accuracy in evaluation.json: mean, low, high and the number of tasks."""

_LOADING = f"""\
## Loading

With `episodic_dp` installed (`pip install .` in a checkout of it):

```sh
episodic-dp verify DIR/{folder.STATEMENT}
episodic-dp adapt --model=DIR --support=SUPPORT --query=QUERY --out=OUT
```

`SUPPORT` holds one folder of images for each class, `QUERY` images, or such
folders. In Python:

```python
from episodic_dp import export

model = export.Predictor.load('DIR')
found = model.adapt(images, labels).predict(others)
found.labels, found.probabilities
```

Loading compares every file with its digest, computes the privacy statement
again, and executes nothing of this folder."""


def text(
    found: Description, statement: Mapping[str, Any], scores: Scores | None
) -> str:
  """Write the card.

  Args:
    found: model.json.
    statement: the privacy statement, which holds.
    scores: of the exported checkpoints; None where they were not measured.
  """
  units = [*statement["guarantees"], *statement["no_guarantee"]]
  title = f"{found.network.name} by {found.learner.name}, {found.way}-way"
  classes = str(found.network.outputs) if found.fixed_way else "two or more"
  shape = " x ".join(map(str, found.preprocessing.shape))
  limits = [
      "An image of a class that is not in the support set is assigned to one"
      " that is.",
      "Probabilities are the softmax of the logits and were not calibrated.",
      "A prediction depends on the model, the support set and its own image,"
      " not on the other images of a call.",
  ]
  if found.network.is_own:
    limits.append(
        f"The network is code, `{found.network.name}`, which is not part of"
        " this folder: give the function to `Predictor.load` as `model`."
    )
  parts = [
      _front_matter(found, statement, scores, title),
      f"# {title}",
      "A few-shot classifier: it adapts to a few labelled examples of new"
      f" classes. It takes {classes} classes, and any number of examples,"
      f" brought to {shape}.",
      f"Trained on `{found.data}` with the units {' / '.join(units)}."
      " The data are not part of this folder, nor are names of units or"
      " classes.",
      _privacy(statement),
      _evaluation(found, scores),
      "## Limits\n\n" + "\n".join(f"- {line}" for line in limits),
      _LOADING,
      f"Written by {found.written_by}.",
  ]
  return "\n\n".join(parts) + "\n"


def with_adaptation(card: str, statement: Mapping[str, Any]) -> str:
  """Return the card of a model that is adapted, in place of an earlier one.

  Args:
    card: of the model.
    statement: the privacy statement of its adaptation.
  """
  names = ", ".join(json.dumps(name) for name in statement["classes"])
  parts = [
      card.partition(_ADAPTED)[0] + _ADAPTED,
      f"This folder also holds prototypes of the classes {names}, by which"
      " `Predictor.load('DIR').adapted` classifies. They were made under noise"
      " from the examples of the units below. Their ε is not added to that"
      " above, unless a unit is in both: then its costs add up. Their statement"
      f" is `{folder.ADAPTATION}`.",
      *_guarantees(statement),
  ]
  return "\n\n".join(parts) + "\n"


def _front_matter(
    found: Description,
    statement: Mapping[str, Any],
    scores: Scores | None,
    title: str,
) -> str:
  """Write YAML; texts and numbers of JSON are valid YAML."""
  lines = [
      "---",
      "library_name: episodic_dp",
      "license: unknown  # Name one before you publish the model.",
      f"model_name: {json.dumps(title)}",
  ]
  if found.preprocessing.kind == "image":
    lines.append("pipeline_tag: image-classification")
  lines += ["tags:", "- few-shot-learning", "- meta-learning", "- jax"]
  if has_guarantee(statement):
    lines.append("- differential-privacy")
  if scores is not None:
    lines += [
        "model-index:",
        f"- name: {json.dumps(title)}",
        "  results:",
        "  - task:",
        "      type: image-classification",
        f"      name: {found.way}-way {found.shot}-shot",
        "    dataset:",
        f"      type: {json.dumps(found.data)}",
        f"      name: {json.dumps(found.data)}",
        "    metrics:",
        "    - type: accuracy",
        "      name: accuracy on test tasks",
        f"      value: {scores['mean']:.4f}",
    ]
  return "\n".join([*lines, "---"])


def _privacy(statement: Mapping[str, Any]) -> str:
  """Write the guarantees with their assumptions, or that there are none."""
  lines = ["## Privacy"]
  finite = _finite(statement)
  if not finite:
    lines.append("**This model has no privacy guarantee.**")
  elif statement["fixed_seed"]:
    lines.append(
        "**No privacy guarantee against anyone who knows or guesses the"
        " seed**, which the configuration of the run fixes."
    )
  if finite:
    lines.append(
        "ε and δ bound what this model reveals about one unit of its training"
        " data. They say nothing about the examples that you adapt it to, or"
        " classify."
    )
  return "\n\n".join([*lines, *_guarantees(statement)])


def _guarantees(statement: Mapping[str, Any]) -> list[str]:
  """Write the finite guarantees, the caveats and the assumptions."""
  finite = _finite(statement)
  lines = []
  if finite:
    lines.append(tables.markdown(
        ("unit", "ε", "δ", "neighbours", "accountant", "steps"),
        [
            (
                level, report.rounded_up(float(g["epsilon"])),
                report.rounded_delta(g["delta"]), g["neighbours"],
                g["accountant"], g["steps"],
            )
            for level, g in finite.items()
        ],
    ))
  lines += statement["no_guarantee"].values()
  lines += report.stated_caveats(finite.values())
  assumptions = dict.fromkeys(
      a for g in finite.values() for a in g["assumptions"]
  )
  if assumptions:
    lines.append(
        "Assumptions:\n\n" + "\n".join(f"- {a}" for a in assumptions)
    )
  return lines


def _evaluation(found: Description, scores: Scores | None) -> str:
  said = (
      f"## Evaluation\n\nCheckpoint ({found.checkpoint}) of step"
      f" {', '.join(map(str, found.steps))}: "
  )
  if scores is None:
    return f"{said}not measured on test tasks."
  return (
      f"{said}{100 * scores['mean']:.1f} % of the query images are classified"
      f" correctly (95 % interval {100 * scores['low']:.1f} to"
      f" {100 * scores['high']:.1f} %, one image a call, {scores['tasks']} test"
      " tasks of"
      f" `{found.data}`, {found.way}-way {found.shot}-shot, of"
      " classes that no training step saw); chance"
      f" is {100 / found.way:.0f} %."
  )


def has_guarantee(statement: Mapping[str, Any]) -> bool:
  """Return whether a level has a finite epsilon against everyone.

  A run whose seed is in its config has none: an integer can be guessed.
  """
  return not statement["fixed_seed"] and bool(_finite(statement))


def _finite(statement: Mapping[str, Any]) -> dict[str, Any]:
  """Return level -> guarantee with a finite epsilon."""
  stated = statement["guarantees"].items()
  return {k: g for k, g in stated if math.isfinite(float(g["epsilon"]))}

"""The model card of an exported folder, README.md in the Hugging Face format.

Every number in it is read from model.json, the privacy statement or what
`episodic-dp evaluate` measured.
"""

from collections.abc import Mapping
import dataclasses
import json
import math
from typing import Any

from episodic_dp.accounting import report
from episodic_dp.export import folder
from episodic_dp.export.description import Description
from episodic_dp.output import tables


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
  """Accuracy over the run's public test tasks, with its 95 % interval."""

  mean: float
  low: float
  high: float
  tasks: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
  """What a card says besides model.json and the statement.

  Attributes:
    data: the name of the data set.
    levels: of its units, primary ones first.
    evaluation: None where the checkpoint was not measured.
    terms: the licence, or None where none was named.
    guaranteed: whether a finite epsilon of a level holds against everybody.
    signed: whether the folder is.
    transductive: whether predictions depend on what is classified with them.
  """

  data: str
  levels: tuple[str, ...]
  evaluation: Evaluation | None
  terms: str | None
  guaranteed: bool
  signed: bool
  transductive: bool


def text(
    found: Description, statement: Mapping[str, Any], facts: Facts
) -> str:
  """The card.

  Args:
    found: model.json.
    statement: the privacy statement, which holds.
    facts: the rest.
  """
  title = f"{found.network.name} by {found.learner.name}, {found.task.way}-way"
  parts = [
      _front_matter(found, facts, title),
      f"# {title}",
      "A few-shot classifier: it adapts to a few labelled examples of classes"
      " that it has never seen, and tells these classes apart.",
      _head(statement, facts),
      _data(found, facts),
      _privacy(statement, facts),
      _use(found),
      _limits(found, facts),
      _evaluation(found, facts),
      _loading(found.library, facts),
      _files(found, facts),
  ]
  return "\n\n".join(parts) + "\n"


def _front_matter(found: Description, facts: Facts, title: str) -> str:
  """YAML, of which JSON's texts and numbers are a part."""
  lines = ["---", "library_name: episodic_dp"]
  if facts.terms is not None:
    lines.append(f"license: {json.dumps(facts.terms)}")
  if found.preprocessing.kind == "image":
    lines.append("pipeline_tag: image-classification")
  lines += ["tags:", "- few-shot-learning", "- meta-learning", "- jax"]
  if facts.guaranteed:
    lines.append("- differential-privacy")
  if facts.evaluation is not None:
    lines += [
        "model-index:",
        f"- name: {json.dumps(title)}",
        "  results:",
        "  - task:",
        "      type: image-classification",
        f"      name: {found.task.way}-way {found.task.shot}-shot",
        "    dataset:",
        f"      type: {json.dumps(facts.data)}",
        f"      name: {json.dumps(facts.data)}",
        "    metrics:",
        "    - type: accuracy",
        f"      value: {facts.evaluation.mean:.4f}",
    ]
  return "\n".join([*lines, "---"])


def _head(statement: Mapping[str, Any], facts: Facts) -> str:
  if statement["fixed_seed"] and has_finite(statement):
    return (
        "**No privacy guarantee against anyone who knows or guesses the seed**:"
        " the configuration of the run fixes it."
    )
  if not facts.guaranteed:
    return "**This model has no privacy guarantee.**"
  return (
      "It was trained with differential privacy; what that covers stands under"
      " [Privacy](#privacy)."
  )


def _data(found: Description, facts: Facts) -> str:
  how = found.preprocessing
  shape = " x ".join(map(str, how.shape))
  if how.kind == "image":
    whole = how.divide_by == 255
    color = "RGB" if how.shape[-1] == 3 else "grey"
    said = (
        f"Images of {shape}, {color}: any image is brought to that size"
        f" ({how.resample}), and"
        + (" divided by 255." if whole else " taken from 0 to 1.")
    )
    if how.background:
      said += (
          f" The public images of its data have a {how.background} background;"
          " `episodic-dp adapt --invert` turns others round."
      )
  else:
    said = f"Numbers of shape {shape}, taken as they are."
  if (how.offset, how.scale, how.clip) != (None, None, None):
    said += (
        f" Values are scaled by the public numbers offset={how.offset},"
        f" scale={how.scale}, clip={how.clip}."
    )
  levels = " / ".join(facts.levels)
  return (
      f"## Data\n\nTrained on the data set `{facts.data}` with the units"
      f" {levels}, which is not part of this folder. {said} The sizes of the"
      f" units stand in `{folder.STATEMENT}`"
      f"{' and are public by assumption' if facts.guaranteed else ''}; names of"
      " units and classes are nowhere in this folder."
  )


def _privacy(statement: Mapping[str, Any], facts: Facts) -> str:
  rows = [
      (
          level,
          report.rounded_up(float(stated["epsilon"]))
          if _finite(stated)
          else "none",
          f"{stated['delta']:g}",
          stated["neighbours"],
          stated["accountant"],
          stated["steps"],
      )
      for level, stated in statement["guarantees"].items()
  ]
  header = ("unit", "ε", "δ", "neighbours", "accountant", "steps")
  lines = ["## Privacy"]
  if has_finite(statement):
    lines.append(tables.markdown(header, rows))
  for why in statement["no_guarantee"].values():
    lines.append(f"{why[:1].upper()}{why[1:]}.")
  stated = statement["guarantees"].values()
  caveats = dict.fromkeys(s["caveat"] for s in stated if s["caveat"])
  lines += [f"> {caveat}" for caveat in caveats]
  if not facts.guaranteed:
    said = "Nothing bounds what this model tells of its training data."
    if has_finite(statement):
      said = f"To whoever has the seed: n{said[1:]}"
    return "\n\n".join([*lines, said])
  lines.append(
      "ε and δ bound what this model tells of one unit of its training data, to"
      " whoever has the model and everything else in this folder. They say"
      " nothing of the examples that you adapt it to, or classify."
  )
  assumptions = dict.fromkeys(a for s in stated for a in s["assumptions"])
  if assumptions:
    lines.append(
        "It rests on these assumptions:\n\n"
        + "\n".join(f"- {a}" for a in assumptions)
    )
  lines.append(
      "Everything needed to compute these numbers again is in"
      f" `{folder.STATEMENT}`:"
      f"\n\n```sh\nepisodic-dp verify DIR/{folder.STATEMENT}\n```"
  )
  return "\n\n".join(lines)


def _use(found: Description) -> str:
  name, steps = found.learner.name, found.learner.inner_steps
  way = "any number of classes, two or more"
  if name in ("maml", "anil", "meta_sgd", "reptile"):
    way = f"exactly {found.network.outputs} classes"
  how = {
      "protonet": "compares with the mean embedding of each class",
      "ridge": "solves a ridge regression on the embeddings",
      "supervised": "trains a new head on the support set",
  }.get(name, f"takes {steps} gradient step{'s' * (steps > 1)} on it")
  return (
      "## Intended use\n\nTelling new classes apart from a few examples of each"
      f" (the support set): it {how}. It takes {way}, and any number of"
      f" examples of each; it was measured with {found.task.shot}."
  )


def _limits(found: Description, facts: Facts) -> str:
  lines = [
      "An image of a class that is not in the support set is put into one that"
      " is.",
      "Probabilities are the softmax of the logits and were not calibrated.",
      "Images unlike those of the training data are classified worse than the"
      " evaluation says.",
  ]
  if facts.transductive:
    lines.append(
        "The network normalises by the batch: what is classified in one call is"
        " judged together, so that a prediction changes with the images beside"
        " it, and classes of very unequal numbers are told apart worse."
    )
  if found.preprocessing.background:
    lines.append(
        f"It is of images on a {found.preprocessing.background} background."
    )
  return "## Limits\n\n" + "\n".join(f"- {line}" for line in lines)


def _evaluation(found: Description, facts: Facts) -> str:
  which = {
      "last": f"The checkpoint of step {found.steps[-1]}",
      "best": (
          f"The checkpoint of step {found.steps[-1]}, the best on public"
          " validation tasks,"
      ),
      "ensemble": (
          f"The mean of the probabilities of {len(found.steps)} checkpoints"
          f" (steps {', '.join(map(str, found.steps))}), the best on public"
          " validation tasks,"
      ),
  }[found.checkpoint]
  measured = facts.evaluation
  if measured is None:
    said = "was not measured on test tasks."
  else:
    said = (
        f"names {100 * measured.mean:.1f} % of the query images rightly, with"
        f" the 95 % interval {100 * measured.low:.1f} to"
        f" {100 * measured.high:.1f} %, over {measured.tasks} test tasks of"
        f" `{facts.data}`, {found.task.way}-way {found.task.shot}-shot with"
        f" {found.task.query} {'query' if found.task.query == 1 else 'queries'}"
        " a class, of classes that no training step"
        f" saw. A blind guess names {100 / found.task.way:.0f} %."
    )
  return f"## Evaluation\n\n{which} {said}"


def _loading(library: str, facts: Facts) -> str:
  key = ", public_key='KEY.pub'" if facts.signed else ""
  flag = " --public_key=KEY.pub" if facts.signed else ""
  return (
      f"## How to load\n\nWith {library} installed (`pip install .` in a"
      " checkout of it; a package index may have another package of this"
      " name):\n\n```sh\n"
      "episodic-dp adapt --model=DIR --support=SUPPORT --query=QUERY"
      f" --out=OUT{flag}\n```\n\n"
      "`SUPPORT` holds one folder of images for each class, `QUERY` images, or"
      " such folders. In Python:\n\n```python\n"
      "from episodic_dp import export\n\n"
      f"model = export.Predictor.load('DIR'{key})\n"
      "found = model.adapt(images, labels).predict(others)\n"
      "found.labels, found.probabilities\n```\n\n"
      "Loading compares every file with its digest, computes the privacy"
      " statement again, and executes nothing of this folder."
  )


def _files(found: Description, facts: Facts) -> str:
  rows = [
      (f"`{name}`", "weights of a checkpoint, float32")
      for name in found.weights
  ]
  if found.start:
    rows.append((f"`{found.start}`", "public weights that were not trained"))
  rows += [
      (f"`{folder.MODEL}`", "network, learner, preprocessing, shapes"),
      (f"`{folder.STATEMENT}`", "the privacy statement"),
      (f"`{folder.DIGESTS}`", "the SHA-256 of every file"),
  ]
  if facts.signed:
    rows.append((
        f"`{folder.SIGNATURE}`",
        f"a signature (Ed25519) of the statement and of `{folder.DIGESTS}`",
    ))
  table = tables.markdown(("file", "holds"), rows)
  return f"## Files\n\nWritten by {found.library}.\n\n{table}"


def has_finite(statement: Mapping[str, Any]) -> bool:
  """Whether a level has a finite epsilon, be the seed known or not."""
  return any(_finite(s) for s in statement["guarantees"].values())


def _finite(stated: Mapping[str, Any]) -> bool:
  return math.isfinite(float(stated["epsilon"]))

"""Building blocks of presets: what several runs have in common."""

from collections.abc import Mapping
import math
from typing import Any

from episodic_dp import options
from episodic_dp import plan
from episodic_dp.run import Data
from episodic_dp.run import Run


def people(
    rate: float,
    way: int,
    shot: int,
    query: int,
    *,
    allow_short_units: bool = False,
) -> plan.SamplingPlan:
  """Return a plan whose steps sample people (Poisson), one task of each.

  Args:
    rate: share of the people that a step samples.
    way: number of classes of a task.
    shot: number of support examples of a class.
    query: number of query examples of a class.
    allow_short_units: whether people may have too little for a task.
  """
  return plan.SamplingPlan(
      (plan.Poisson(rate), plan.FixedSize(way), plan.FixedSize(shot + query)),
      plan.Episode(way=way, shot=shot, query=query),
      allow_short_units=allow_short_units,
  )


def mechanism(private: bool, **values: Any) -> plan.Mechanism:
  """Return a mechanism; without privacy, no clipping and no noise.

  Args:
    private: whether to clip and add noise.
    **values: field of `plan.Mechanism` -> value.
  """
  if not private:
    values |= dict(clip_norm=math.inf, noise_multiplier=0.0)
  return plan.Mechanism(**values)


def on_features(
    run: Run, backbone: str, network: str = "features"
) -> Run:
  """Return a run on the features of a backbone, by cosine distances.

  Args:
    run: a run on images.
    backbone: its ONNX file, or "" to return the run as it is.
    network: name of the network that learns them.
  """
  if not backbone:
    return run
  return run.replace({
      "data.options.backbone": {"file": backbone},
      "model.name": network,
      "model.linear": False,
      # With a learned scale of each feature.
      "model.cosine": network == "features",
  })


def supervised(way: int, classes: int, **values: Any) -> Run:
  """Return a run of example-level training of one network for all classes.

  Args:
    way: number of classes of a validation or test task, which trains a new
      head.
    classes: number of classes of the training data.
    **values: other fields of `Run` -> value.
  """
  return Run(
      learner=options.LearnerOptions(name="supervised"),
      # Single examples are clipped: batch normalisation would mix them.
      model=options.Network(norm="group", outputs=classes),
      evaluation=options.Evaluation(way=way),
      # Examples whose gradients are in memory.
      compute=options.Placement(microbatch_size=16),
      **values,
  )


def participants(
    *,
    private: bool,
    way: int,
    shot: int,
    query: int,
    width: int,
    participants: int,
    inner_steps: int,
    steps: int,
    rate: float,
    data: str,
    data_options: Mapping[str, Any] | None = None,
    most_copies: Mapping[str, int] | None = None,
    **values: Any,
) -> Run:
  """Return a run on synthetic participants as in DP-MAML.

  A step samples participants by Poisson sampling, and each is one task.

  Args:
    private: whether to clip and add noise.
    way: number of classes of a task.
    shot: number of support examples of a class.
    query: number of query examples of a class of a training task.
    width: width of the network.
    participants: number of participants.
    inner_steps: number of inner steps of MAML.
    steps: number of training steps.
    rate: share of the participants that a step samples.
    data: name of the data set.
    data_options: further options of the data set.
    most_copies: level -> the largest number of participants that hold the same
      unit.
    **values: other fields of `Run` -> value.
  """
  per_class = shot + query
  return Run(
      steps=steps,
      delta=1e-6,
      plan=people(rate, way, shot, query),
      hierarchy=plan.Hierarchy.regular(
          (participants, way, per_class),
          levels=("participant", "class", "image"),
          copies=True, most_copies=most_copies or None,
      ),
      mechanism=mechanism(
          private,
          clip_unit="participant",
          # Far below the norms at the start (15 to 20 for Omniglot), so that
          # tasks are clipped and the noise shrinks with the norm; not tuned.
          clip_norm=0.25,
          noise_multiplier=1.0,
      ),
      data=Data(name=data, options=dict(
          data_options or {}, participants=participants, way=way,
          per_class=per_class, seed=0,
      )),
      checkpoint_every=5,
      model=options.Network(width=width),
      learner=options.LearnerOptions(inner_steps=inner_steps),
      **values,
  )

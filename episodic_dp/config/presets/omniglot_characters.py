"""Omniglot in two stages: characters, then drawings; tasks cut from classes.

A step samples tasks * 5 of the 1150 training characters and shot + query
drawings of each. The characters, in random order, are cut into 5-way tasks (the
disjoint episodes of "Privacy Amplification for Episodic Training Methods",
Tombs, Kotevska and Young, 2022). Every drawing is real, so a drawing has a
guarantee. With sample_level=1 each drawing is clipped and noised separately, in
inner steps too (Algorithm 2 of "Meta-Learning with Differential Privacy", with
first-order outer gradients). With sample_level=0 whole tasks are.

Command:
  episodic-dp train --data_dir=DATA --workdir=DIR \\
      --config=omniglot_characters

python -m experiments.reproduce --target=sample_level compares the two at the
same epsilon for a drawing; see experiments/results/.

Arguments after the colon: private (1), sample_level (0), tasks (100 a step),
shot (5), query (1), width (8), inner_steps (3), steps (100), noise_multiplier
(4.0), inner_noise_multiplier (2.0, for sample-level training only).
"""

from typing import Any

from episodic_dp import options
from episodic_dp import plain
from episodic_dp import plan
from episodic_dp.config import defaults
from episodic_dp.run import Data
from episodic_dp.run import Run

WAY = 5
SIZES = (1150, 20)
LEVELS = ("class", "drawing")


def omniglot_characters(
    *,
    private: bool = True,
    sample_level: bool = False,
    tasks: plain.Count = 100,
    shot: plain.Count = 5,
    query: plain.Count = 1,
    width: plain.Count = 8,
    inner_steps: plain.Count = 3,
    steps: plain.Count = 100,
    noise_multiplier: plain.NotNegative = 4.0,
    inner_noise_multiplier: plain.NotNegative = 2.0,
) -> Run:
  """Return the run; the module describes it and its arguments."""
  mechanism: dict[str, Any] = dict(clip_unit="episode", clip_norm=0.25)
  if private and sample_level:
    mechanism = dict(
        clip_unit="drawing",
        order="first",
        inner_steps=inner_steps,
        inner_clip_norm=1.0,
        inner_noise_multiplier=inner_noise_multiplier,
    )
  return Run(
      steps=steps,
      delta=1e-5,
      plan=plan.SamplingPlan(
          (plan.FixedSize(WAY * tasks), plan.FixedSize(shot + query)),
          plan.Episode(way=WAY, shot=shot, query=query, form="disjoint"),
      ),
      hierarchy=plan.Hierarchy.regular(SIZES, levels=LEVELS),
      mechanism=defaults.mechanism(
          private, noise_multiplier=noise_multiplier, **mechanism
      ),
      data=Data(name="omniglot", options=dict(rotate=True, seed=0)),
      checkpoint_every=10,
      # At the sample level no layer may mix the drawings of a task.
      model=options.Network(width=width, norm="group"),
      learner=options.LearnerOptions(order="first", inner_steps=inner_steps),
      optimizer=options.Optimizer(rate=0.01, final_rate=0.002),
      evaluation=options.Evaluation(shot=shot, query=2, every=10),
  )

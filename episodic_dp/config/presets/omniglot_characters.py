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

import ml_collections

from episodic_dp import plan
from episodic_dp.config import defaults

WAY = 5
SIZES = (1150, 20)
LEVELS = ("class", "drawing")


def get_config(text: str = "") -> ml_collections.ConfigDict:
  """Return the config; `text` holds the arguments named above."""
  arg = defaults.arguments(
      text, private=True, sample_level=False, tasks=100, shot=5, query=1,
      width=8, inner_steps=3, steps=100, noise_multiplier=4.0,
      inner_noise_multiplier=2.0,
  )
  mechanism = dict(clip_unit="episode", clip_norm=0.25)
  if arg.private and arg.sample_level:
    mechanism = dict(
        clip_unit="drawing",
        order="first",
        inner_steps=arg.inner_steps,
        inner_clip_norm=1.0,
        inner_noise_multiplier=arg.inner_noise_multiplier,
    )
  return defaults.base(
      steps=arg.steps,
      delta=1e-5,
      plan=dict(stages=(
          f"FixedSize({WAY * arg.tasks})", f"FixedSize({arg.shot + arg.query})"
      )),
      episode=dict(way=WAY, shot=arg.shot, query=arg.query, form="disjoint"),
      hierarchy=defaults.hierarchy(
          plan.Hierarchy.regular(SIZES, levels=LEVELS)
      ),
      mechanism=defaults.mechanism(
          arg.private, noise_multiplier=arg.noise_multiplier, **mechanism
      ),
      data=dict(name="omniglot", options=dict(rotate=True, seed=0)),
      checkpoint_every=10,
      # At the sample level no layer may mix the drawings of a task.
      model=dict(width=arg.width, norm="group"),
      learner=dict(order="first", inner_steps=arg.inner_steps),
      optimizer=dict(rate=0.01, final_rate=0.002),
      evaluation=dict(shot=arg.shot, query=2, every=10),
  )

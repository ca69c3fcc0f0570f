"""Sample-level privacy: every drawing is a clip unit, inside the tasks too.

Algorithm 2 of "Meta-Learning with Differential Privacy" (DP-MAML), with
first-order outer gradients. The gradients of single support drawings are
clipped and noised in every inner step, those of single query drawings in the
outer sum. With sample_level=0 the same plan is trained with whole tasks as clip
units, and with the noise that gives a drawing the same guarantee.

Commands:
  episodic-dp train --workdir=DIR \\
      --config=glyphs_sample_level
  episodic-dp evaluate --workdir=DIR

Measured with --config.private_seed=1, one run each, in about four minutes on
two busy CPU cores: a drawing has epsilon 2.41 in sample-level training and 2.40
with tasks as clip units (delta = 1e-5). The 5-way 8-shot accuracies on 600 test
tasks (last checkpoint) are 36.4 +- 1.1 % and 47.8 +- 1.2 %; untrained it is
34.5 +- 1.0 %. A participant has epsilon 3.94 and 3.18. The settings of learner
and optimizer are the best of four tried without privacy, after private runs
with others had learned nothing. Clip norms and the shares of inner and outer
noise are first guesses.

Arguments after the colon: private (1), sample_level (1), participants (4000),
rate (0.04: share of the participants that a step samples), width (8),
inner_steps (3), shot (8), query (2), steps (60), size (16: pixels).
"""

import ml_collections

from episodic_dp import plan
from episodic_dp.config import defaults

GLYPHS, DRAWINGS = 6, 14


def get_config(text: str = "") -> ml_collections.ConfigDict:
  """Return the config; `text` holds the arguments named above."""
  arg = defaults.arguments(
      text, private=True, sample_level=True, participants=4000, rate=0.04,
      width=8, inner_steps=3, shot=8, query=2, steps=60, size=16,
  )
  mechanism = dict(clip_unit="participant", noise_multiplier=0.873)
  if arg.private and arg.sample_level:
    mechanism = dict(
        clip_unit="drawing",
        noise_multiplier=8.0,
        order="first",
        inner_steps=arg.inner_steps,
        inner_clip_norm=1.0,
        inner_noise_multiplier=4.0,
    )
  return defaults.base(
      steps=arg.steps,
      delta=1e-5,
      plan=dict(stages=(
          f"Poisson({arg.rate})", "FixedSize(5)",
          f"FixedSize({arg.shot + arg.query})",
      )),
      episode=dict(way=5, shot=arg.shot, query=arg.query),
      hierarchy=defaults.hierarchy(plan.Hierarchy.regular(
          (arg.participants, GLYPHS, DRAWINGS),
          levels=("participant", "glyph", "drawing"),
      )),
      mechanism=defaults.mechanism(arg.private, **mechanism),
      data=dict(name="glyphs", options=dict(
          participants=arg.participants, glyphs=GLYPHS, drawings=DRAWINGS,
          validation_participants=200, test_participants=600, size=arg.size,
          seed=0,
      )),
      checkpoint_every=10,
      model=dict(width=arg.width, norm="group"),
      learner=dict(order="first", inner_steps=arg.inner_steps, inner_rate=0.4),
      optimizer=dict(rate=0.01, final_rate=0.002),
      evaluation=dict(shot=arg.shot, query=4, every=10),
  )

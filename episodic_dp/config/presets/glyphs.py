"""The built-in data: 5-way 1-shot on the scripts of thousands of writers.

Every participant draws the glyphs of a separate script. A step samples
participants (Poisson), then five of their glyphs, then drawings of each. The
run gives guarantees for the participant, the glyph and the drawing at once.

Command:
  episodic-dp train --config=glyphs \\
      --workdir=DIR

Expected, on two CPU cores: 60 steps in under a minute, compilation included;
test accuracy 67 to 72 % with privacy (the noise differs from key to key) at
epsilon 1.209 for a participant, 0.9197 for a glyph and 0.5406 for a drawing
(delta = 1e-5), and 77 to 84 % without (private=0); untrained 30 %, chance
20 %. Both runs, and the comparison:
  python -m experiments.reproduce --target=glyphs --scale=cpu --workdir=DIR

Arguments after the colon: private (1), participants (8000), rate (0.02: share
of the participants that a step samples), width (8), inner_steps (1), steps
(60), size (28: pixels).
"""

import ml_collections

from episodic_dp import plan
from episodic_dp.config import defaults


def get_config(text: str = "") -> ml_collections.ConfigDict:
  """Return the config; `text` holds the arguments named above."""
  arg = defaults.arguments(
      text, private=True, participants=8000, rate=0.02, width=8, inner_steps=1,
      steps=60, size=28,
  )
  return defaults.base(
      steps=arg.steps,
      delta=1e-5,
      plan=dict(stages=(
          f"Poisson({arg.rate})", "FixedSize(5)", "FixedSize(3)"
      )),
      episode=dict(way=5, shot=1, query=2),
      hierarchy=defaults.hierarchy(plan.Hierarchy.regular(
          (arg.participants, 8, 5), levels=("participant", "glyph", "drawing")
      )),
      mechanism=defaults.mechanism(
          arg.private,
          clip_unit="participant",
          clip_norm=1.0,
          noise_multiplier=1.0,
      ),
      data=dict(name="glyphs", options=dict(
          participants=arg.participants, glyphs=8, drawings=5,
          validation_participants=200, test_participants=600, size=arg.size,
          seed=0,
      )),
      checkpoint_every=10,
      model=dict(width=arg.width),
      learner=dict(inner_steps=arg.inner_steps),
      optimizer=dict(rate=0.03, final_rate=0.003),
      evaluation=dict(query=4, every=10),
  )

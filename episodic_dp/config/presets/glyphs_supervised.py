"""The built-in data without tasks: DP-SGD on the drawings of all glyphs.

One network learns to classify the glyphs of all training writers from Poisson
samples of single drawings, each clipped separately (Abadi et al., 2016,
Algorithm 1). The drawing is the only unit with a guarantee. The result is
measured on tasks of unseen writers: the features are kept, and a new head is
trained on the support set of every task (config.fine_tuning).

Command:
  episodic-dp train --workdir=DIR \\
      --config=glyphs_supervised

Expected, on two CPU cores: 100 steps in 49 s of processor time, compilation
included; with privacy 63.8 % ± 1.2 of test accuracy at epsilon = 3.503 for a
drawing (delta = 1e-5; the noise differs from key to key), untrained features
39.6 %, chance 20 %.

Arguments after the colon: private (1), writers (20, of 8 glyphs each), drawings
(60, of each glyph), rate (0.05: share of the drawings that a step samples),
width (8), steps (100), noise_multiplier (1.0), size (28: pixels).
"""

import ml_collections

from episodic_dp import plan
from episodic_dp.config import defaults

GLYPHS = 8


def get_config(text: str = "") -> ml_collections.ConfigDict:
  """Return the config; `text` holds the arguments named above."""
  arg = defaults.arguments(
      text, private=True, writers=20, drawings=60, rate=0.05, width=8,
      steps=100, noise_multiplier=1.0, size=28,
  )
  classes = arg.writers * GLYPHS
  return defaults.supervised(
      5, classes,
      steps=arg.steps,
      delta=1e-5,
      plan=dict(stages=(f"Poisson({arg.rate})",)),
      hierarchy=defaults.hierarchy(plan.Hierarchy.regular(
          (classes * arg.drawings,), levels=("drawing",)
      )),
      mechanism=defaults.mechanism(
          arg.private,
          clip_unit="drawing",
          clip_norm=1.0,
          noise_multiplier=arg.noise_multiplier,
      ),
      data=dict(name="glyphs", options=dict(
          participants=arg.writers, glyphs=GLYPHS, drawings=arg.drawings,
          validation_participants=20, test_participants=100, size=arg.size,
          seed=0,
      )),
      checkpoint_every=20,
      model=dict(width=arg.width),
      optimizer=dict(rate=0.02, final_rate=0.002),
      evaluation=dict(query=4, every=20),
  )

"""Omniglot in three stages: alphabet, character, drawing.

Paper: "Privacy Amplification for Episodic Training Methods" (Tombs, Kotevska
and Young, 2022). A step samples alphabets (Poisson), then characters of each,
then drawings of these. One alphabet is one task, and way is the number of
characters that the class stage samples; the smallest of the background
alphabets have 14.

One run gives guarantees for the alphabet, the character and the drawing. With
only 30 alphabets no small epsilon exists for one of them. This config
demonstrates the accounting; thousands of writers (glyphs.py) give a useful
epsilon.

Command:
  episodic-dp train --data_dir=DATA --workdir=DIR \\
      --config=omniglot_alphabets

Arguments after the colon: private (1), rate (0.27: share of the alphabets that
a step samples), way (5, at most 14), shot (1), query (1), width (16),
inner_steps (1), steps (250), noise_multiplier (1.0).
"""

import collections

from episodic_dp import options
from episodic_dp import plain
from episodic_dp import plan
from episodic_dp.config import defaults
from episodic_dp.data import omniglot
from episodic_dp.run import Data
from episodic_dp.run import Run


def omniglot_alphabets(
    *,
    private: bool = True,
    rate: plain.Rate = 0.27,
    way: plain.Count = 5,
    shot: plain.Count = 1,
    query: plain.Count = 1,
    width: plain.Count = 16,
    inner_steps: plain.Count = 1,
    steps: plain.Count = 250,
    noise_multiplier: plain.NotNegative = 1.0,
) -> Run:
  """Return the run; the module describes it and its arguments."""
  sizes = collections.Counter(
      c.alphabet for c in omniglot.characters() if c.official == "background"
  )
  return Run(
      steps=steps,
      delta=1e-5,
      plan=defaults.people(rate, way, shot, query),
      hierarchy=plan.Hierarchy.from_sizes(
          [[omniglot.DRAWINGS] * n for n in sizes.values()],
          levels=("alphabet", "character", "drawing"),
      ),
      mechanism=defaults.mechanism(
          private,
          clip_unit="alphabet",
          clip_norm=1.0,
          noise_multiplier=noise_multiplier,
      ),
      data=Data(name="omniglot", options=dict(split="alphabets", seed=0)),
      model=options.Network(width=width),
      learner=options.LearnerOptions(inner_steps=inner_steps),
      evaluation=options.Evaluation(shot=shot),
  )

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

from typing import Any

from episodic_dp import options
from episodic_dp import plain
from episodic_dp.config import defaults
from episodic_dp.data import pools
from episodic_dp.run import Data
from episodic_dp.run import Run

GLYPHS, DRAWINGS = 6, 14


def glyphs_sample_level(
    *,
    private: bool = True,
    sample_level: bool = True,
    participants: plain.Count = 4000,
    rate: plain.Rate = 0.04,
    width: plain.Count = 8,
    inner_steps: plain.Count = 3,
    shot: plain.Count = 8,
    query: plain.Count = 2,
    steps: plain.Count = 60,
    size: plain.Count = 16,
) -> Run:
  """Return the run; the module describes it and its arguments."""
  mechanism: dict[str, Any] = dict(
      clip_unit="participant", noise_multiplier=0.873
  )
  if private and sample_level:
    mechanism = dict(
        clip_unit="drawing",
        noise_multiplier=8.0,
        order="first",
        inner_steps=inner_steps,
        inner_clip_norm=1.0,
        inner_noise_multiplier=4.0,
    )
  source = pools.Glyphs(
      participants=participants, glyphs=GLYPHS, drawings=DRAWINGS, size=size
  )
  return Run(
      steps=steps,
      delta=1e-5,
      plan=defaults.people(rate, way=5, shot=shot, query=query),
      hierarchy=source.hierarchy(),
      mechanism=defaults.mechanism(private, **mechanism),
      data=Data(name="glyphs", options=plain.to_plain(source)),
      checkpoint_every=10,
      model=options.Network(width=width, norm="group"),
      learner=options.LearnerOptions(
          order="first", inner_steps=inner_steps, inner_rate=0.4
      ),
      optimizer=options.Optimizer(rate=0.01, final_rate=0.002),
      evaluation=options.Evaluation(shot=shot, query=4, every=10),
  )

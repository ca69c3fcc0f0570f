"""The built-in data: 5-way 1-shot on the scripts of thousands of writers.

Every participant draws the glyphs of a separate script. A step samples
participants (Poisson), then five of their glyphs, then drawings of each. The
run gives guarantees for the participant, the glyph and the drawing at once.

Command:
  episodic-dp train --config=glyphs \\
      --workdir=DIR

Expected, on two CPU cores: 60 steps in about a minute, compilation included;
test accuracy 73 to 80 % with privacy (each key has other noise) at epsilon
1.209 for a participant, 0.9197 for a glyph and 0.5406 for a drawing (delta =
1e-5), and 73 to 87 % without (private=0); untrained 30 %, chance 20 %. Both
runs, and the comparison:
  python -m experiments.reproduce --target=glyphs --scale=cpu --workdir=DIR

Arguments after the colon: private (1), participants (12000), rate (0.02: share
of the participants that a step samples), width (8), inner_steps (1), steps
(60), size (28: pixels).
"""

from episodic_dp import options
from episodic_dp import plain
from episodic_dp.config import defaults
from episodic_dp.data import pools
from episodic_dp.run import Data
from episodic_dp.run import Run


def glyphs(
    *,
    private: bool = True,
    participants: plain.Count = 12_000,
    rate: plain.Rate = 0.02,
    width: plain.Count = 8,
    inner_steps: plain.Count = 1,
    steps: plain.Count = 60,
    size: plain.Count = 28,
) -> Run:
  """Return the run; the module describes it and its arguments."""
  source = pools.Glyphs(participants=participants, size=size)
  return Run(
      steps=steps,
      delta=1e-5,
      plan=defaults.people(rate, way=5, shot=1, query=2),
      hierarchy=source.hierarchy(),
      mechanism=defaults.mechanism(
          private,
          clip_unit="participant",
          clip_norm=0.3,
          noise_multiplier=1.0,
      ),
      data=Data(name="glyphs", options=plain.to_plain(source)),
      checkpoint_every=10,
      model=options.Network(width=width),
      learner=options.LearnerOptions(inner_steps=inner_steps),
      optimizer=options.Optimizer(
          rate=0.03, final_rate=0.003, average=0.85
      ),
      evaluation=options.Evaluation(query=4, every=10),
  )

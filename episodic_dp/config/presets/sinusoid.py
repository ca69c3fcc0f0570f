"""The smallest example: sinusoids from ten points, by a perceptron of 40 x 40.

Every participant holds 20 points of one sinusoid. A step samples participants
(Poisson), adapts to ten points of each and is evaluated on the other ten. The
task, the network and the inner step are those of Finn, Abbeel and Levine,
"Model-Agnostic Meta-Learning" (ICML 2017), section 5.1.

Commands, the first for this config, the second with and without privacy and
with a picture of adapted curves:
  episodic-dp train --config=sinusoid \\
      --workdir=DIR
  python -m experiments.reproduce --target=sinusoid --scale=cpu --workdir=DIR

Expected, on two CPU cores: a minute each; mean squared error on 600 unseen
sinusoids about 0.17 with privacy (eight keys: 0.145 to 0.209) at epsilon 0.3191
for a participant and 0.4870 for a point (delta = 1e-5). It is 0.23 (0.167 to
1.5: a run may diverge) with private=0, where nothing is clipped, 0.11 (0.089 to
0.167) with clipping but no noise (--config.mechanism.noise_multiplier=0.0), and
2.9 before adapting.

Arguments after the colon: private (1), participants (100000), rate (0.002:
share of the participants that a step samples), steps (1000), inner_steps (5),
width (40: of both hidden layers), clip_norm (1.0).
"""

from episodic_dp import options
from episodic_dp import plain
from episodic_dp import plan
from episodic_dp.config import defaults
from episodic_dp.data import pools
from episodic_dp.run import Data
from episodic_dp.run import Run

POINTS = 20


def sinusoid(
    *,
    private: bool = True,
    participants: plain.Count = 100_000,
    rate: plain.Rate = 0.002,
    steps: plain.Count = 1000,
    inner_steps: plain.Count = 5,
    width: plain.Count = 40,
    clip_norm: plain.NotNegative = 1.0,
) -> Run:
  """Return the run; the module describes it and its arguments."""
  often = max(1, steps // 10)
  source = pools.Sinusoids(participants=participants, points=POINTS)
  return Run(
      steps=steps,
      delta=1e-5,
      plan=plan.SamplingPlan(
          (plan.Poisson(rate), plan.FixedSize(POINTS)),
          plan.Episode(way=1, shot=10, query=10),
      ),
      hierarchy=source.hierarchy(),
      mechanism=defaults.mechanism(
          private,
          clip_unit="participant",
          clip_norm=clip_norm,
          noise_multiplier=1.0,
      ),
      data=Data(name="sinusoid", options=plain.to_plain(source)),
      model=options.Network(name="mlp", widths=(width, width), outputs=1),
      checkpoint_every=often,
      learner=options.LearnerOptions(inner_steps=inner_steps, inner_rate=0.01),
      evaluation=options.Evaluation(
          shot=10, query=10, validation_tasks=200, every=often
      ),
      # Points are small: many tasks at once.
      compute=options.Placement(microbatch_size=128),
  )

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

from episodic_dp import plain
from episodic_dp import plan
from episodic_dp.config import defaults
from episodic_dp.data import dataset
from episodic_dp.data import pools
from episodic_dp.run import Data
from episodic_dp.run import Run

GLYPHS = 8


def glyphs_supervised(
    *,
    private: bool = True,
    writers: plain.Count = 20,
    drawings: plain.Count = 60,
    rate: plain.Rate = 0.05,
    width: plain.Count = 8,
    steps: plain.Count = 100,
    noise_multiplier: plain.NotNegative = 1.0,
    size: plain.Count = 28,
) -> Run:
  """Return the run; the module describes it and its arguments."""
  source = pools.Glyphs(
      participants=writers, glyphs=GLYPHS, drawings=drawings, size=size,
      validation_participants=20, test_participants=100,
  )
  return defaults.supervised(
      5, writers * GLYPHS,
      steps=steps,
      delta=1e-5,
      plan=plan.SamplingPlan((plan.Poisson(rate),)),
      hierarchy=dataset.flattened(source.hierarchy()),
      mechanism=defaults.mechanism(
          private,
          clip_unit="drawing",
          clip_norm=1.0,
          noise_multiplier=noise_multiplier,
      ),
      data=Data(name="glyphs", options=plain.to_plain(source)),
      checkpoint_every=20,
  ).replace({
      "model.width": width,
      "optimizer.rate": 0.02,
      "optimizer.final_rate": 0.002,
      "evaluation.query": 4,
      "evaluation.every": 20,
  })

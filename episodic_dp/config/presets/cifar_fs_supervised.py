"""CIFAR-FS without tasks: DP-MAML's pre-training and DP pre-training.

Paper: "Meta-Learning with Differential Privacy" (DP-MAML), section 6.5. A
network is trained for all classes together and initialises test tasks without
its last layer. The private network is trained by DP-SGD with z = 6, lots of
2000 images and 100 epochs, for which epsilon = 1.73 at delta = 1e-5 is claimed.
The paper learns 80 classes, including validation. Here validation is separate:
64 classes, 38 400 images, and a step samples each with probability 2000 /
38400, independently (Poisson). This takes 1920 steps and gives epsilon = 1.492
for an image; the 48 000 images of 80 classes in 2400 steps would give 1.318.
Norms are by group, since batch normalisation mixes images that are clipped one
by one; compare with runs of the same norm (--config.model.norm=group).

Command:
  episodic-dp train --data_dir=DATA --workdir=DIR \\
      --config=cifar_fs_supervised
The comparison with other initialisations:
  python -m experiments.reproduce --target=figure13_starts --scale=cpu \\
      --workdir=DIR --data_dir=DATA

The defaults are for an accelerator. A trial on a laptop, without useful
accuracy:
  --config=cifar_fs_supervised:width=8,lot=200,epochs=0.02

Arguments after the colon: private (1), way (5), shot (1), width (48), lot
(2000: average images of a step), epochs (100.0), noise_multiplier (6.0).
"""

from episodic_dp import plain
from episodic_dp import plan
from episodic_dp.config import defaults
from episodic_dp.run import Data
from episodic_dp.run import Run

CLASSES, IMAGES = 64, 64 * 600


def cifar_fs_supervised(
    *,
    private: bool = True,
    way: plain.Count = 5,
    shot: plain.Count = 1,
    width: plain.Count = 48,
    lot: plain.Count = 2000,
    epochs: plain.NotNegative = 100.0,
    noise_multiplier: plain.NotNegative = 6.0,
) -> Run:
  """Return the run; the module describes it and its arguments."""
  return defaults.supervised(
      way, CLASSES,
      steps=max(1, round(epochs * IMAGES / lot)),
      delta=1e-5,
      plan=plan.SamplingPlan((plan.Poisson(lot / IMAGES),)),
      hierarchy=plan.Hierarchy.regular((IMAGES,), levels=("image",)),
      mechanism=defaults.mechanism(
          private,
          clip_unit="image",
          clip_norm=1.0,  # Not tuned.
          noise_multiplier=noise_multiplier,
      ),
      data=Data(name="cifar_fs", options=dict(seed=0)),
      checkpoint_every=50,
  ).replace({
      "model.width": width,
      "optimizer.rate": 0.004,  # The paper's rate.
      "optimizer.final_rate": 0.004,
      "compute.microbatch_size": 64,
      "evaluation.shot": shot,
      "evaluation.query": 15,
      "evaluation.every": 50,
  })

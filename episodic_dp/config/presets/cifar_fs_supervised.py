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

import ml_collections

from episodic_dp import plan
from episodic_dp.config import defaults

CLASSES, IMAGES = 64, 64 * 600


def get_config(text: str = "") -> ml_collections.ConfigDict:
  """Return the config; `text` holds the arguments named above."""
  arg = defaults.arguments(
      text, private=True, way=5, shot=1, width=48, lot=2000, epochs=100.0,
      noise_multiplier=6.0,
  )
  c = defaults.supervised(
      arg.way, CLASSES,
      steps=max(1, round(arg.epochs * IMAGES / arg.lot)),
      delta=1e-5,
      plan=dict(stages=(f"Poisson({arg.lot / IMAGES!r})",)),
      hierarchy=defaults.hierarchy(
          plan.Hierarchy.regular((IMAGES,), levels=("image",))
      ),
      mechanism=defaults.mechanism(
          arg.private,
          clip_unit="image",
          clip_norm=1.0,  # Not tuned.
          noise_multiplier=arg.noise_multiplier,
      ),
      data=dict(name="cifar_fs", options=dict(seed=0)),
      checkpoint_every=50,
  )
  c.model.width = arg.width
  c.optimizer.rate = c.optimizer.final_rate = 0.004  # The paper's rate.
  c.compute.microbatch_size = 64
  c.evaluation.shot, c.evaluation.query = arg.shot, 15
  c.evaluation.every = 50
  return c

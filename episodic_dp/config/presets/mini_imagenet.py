"""mini-ImageNet, 5-way 1-shot, with synthetic participants as in DP-MAML.

Paper: "Meta-Learning with Differential Privacy" (DP-MAML), Table 3: 32.7 %
private (5-way 5-shot: 45.8 %) at a claimed epsilon of 1.5, 51.9 % without
privacy (69.8 %). Its 1600 tasks a step are q = 0.016 of 100 000 participants,
each used once, which takes 62 steps. Here a step samples each participant with
probability q, independently (Poisson). The paper keeps the rate at 0.01, and
its code evaluates a task on 15 images per class.

Command:
  episodic-dp train --data_dir=DATA --workdir=DIR \\
      --config=mini_imagenet

The images cannot be downloaded: put them into DATA/mini_imagenet, see
`episodic_dp.data.mini_imagenet.load`. The training images take 0.8 GB on the
device. The defaults are for an accelerator.

Arguments after the colon: private (1), way (5), shot (1), query (15: query
images per class of a training task), width (48), participants (100000),
inner_steps (5), steps (62), rate (0.016: share of the participants that a step
samples), copy (webp: which copy of the images), size (84: pixels; 42 takes a
quarter of the time).
"""

import ml_collections

from episodic_dp.config import defaults


def get_config(text: str = "") -> ml_collections.ConfigDict:
  """Return the config; `text` holds the arguments named above."""
  arg = defaults.arguments(
      text, private=True, way=5, shot=1, query=15, width=48,
      participants=100_000, inner_steps=5, steps=62, rate=0.016, copy="webp",
      size=84,
  )
  return defaults.participants(
      arg,
      data="mini_imagenet",
      options=dict(copy=arg.copy, size=arg.size),
      optimizer=dict(final_rate=0.01),
      evaluation=dict(shot=arg.shot, query=15, every=10),
  )

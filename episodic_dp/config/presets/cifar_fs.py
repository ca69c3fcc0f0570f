"""CIFAR-FS, 5-way 1-shot, with synthetic participants as in DP-MAML.

Paper: "Meta-Learning with Differential Privacy" (DP-MAML), Table 3: 48.1 %
private (5-way 5-shot: 58.2 %) at a claimed epsilon of 1.5, 61.0 % without
privacy (78.6 %). Its 1600 tasks a step are q = 0.004 of 400 000 participants.
Here a step samples each participant with probability q, independently
(Poisson), which gives epsilon = 0.498 at delta = 1e-6 after 250 steps with z =
1. The paper keeps the rate at 0.01, and its code evaluates a task on 15 images
per class.

Command:
  episodic-dp train --data_dir=DATA --workdir=DIR \\
      --config=cifar_fs

The defaults are for an accelerator. A trial on a laptop, without useful
accuracy:
  --config=cifar_fs:participants=2000,width=8,\\
inner_steps=1,query=1,steps=3

Arguments after the colon: private (1), way (5), shot (1), query (15: query
images per class of a training task), width (48), participants (400000),
inner_steps (5), steps (250), rate (0.004: share of the participants that a step
samples), backbone (the ONNX file whose features replace the images, with cosine
distances and a learned scale of each feature).
"""

from episodic_dp import options
from episodic_dp import plain
from episodic_dp.config import defaults
from episodic_dp.run import Run


def cifar_fs(
    *,
    private: bool = True,
    way: plain.Count = 5,
    shot: plain.Count = 1,
    query: plain.Count = 15,
    width: plain.Count = 48,
    participants: plain.Count = 400_000,
    inner_steps: plain.Count = 5,
    steps: plain.Count = 250,
    rate: plain.Rate = 0.004,
    backbone: str = "",
) -> Run:
  """Return the run; the module describes it and its arguments."""
  run = defaults.participants(
      private=private, way=way, shot=shot, query=query, width=width,
      participants=participants, inner_steps=inner_steps, steps=steps,
      rate=rate,
      data="cifar_fs",
      optimizer=options.Optimizer(final_rate=0.01),
      evaluation=options.Evaluation(shot=shot, query=15, every=10),
  )
  return defaults.on_features(run, backbone)

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

from episodic_dp import options
from episodic_dp import plain
from episodic_dp.config import defaults
from episodic_dp.run import Run


def mini_imagenet(
    *,
    private: bool = True,
    way: plain.Count = 5,
    shot: plain.Count = 1,
    query: plain.Count = 15,
    width: plain.Count = 48,
    participants: plain.Count = 100_000,
    inner_steps: plain.Count = 5,
    steps: plain.Count = 62,
    rate: plain.Rate = 0.016,
    copy: str = "webp",
    size: plain.Count = 84,
) -> Run:
  """Return the run; the module describes it and its arguments."""
  return defaults.participants(
      private=private, way=way, shot=shot, query=query, width=width,
      participants=participants, inner_steps=inner_steps, steps=steps,
      rate=rate,
      data="mini_imagenet",
      data_options=dict(copy=copy, size=size),
      optimizer=options.Optimizer(final_rate=0.01),
      evaluation=options.Evaluation(shot=shot, query=15, every=10),
  )

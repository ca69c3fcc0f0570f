"""Omniglot, 5-way or 20-way, with synthetic participants as in DP-MAML.

Paper: "Meta-Learning with Differential Privacy" (DP-MAML), Table 3: 93.9 %
private (its 1600 tasks a step, q = 0.004 of 400 000), 99.5 % without privacy;
20-way 88.0 % and 96.4 %.
Here a step samples each participant with probability q, independently
(Poisson), which gives epsilon = 0.498 at delta = 1e-6 after 250 steps with z =
1.

Command:
  episodic-dp train --data_dir=DATA --workdir=DIR \\
      --config=omniglot:width=24,inner_steps=1,query=4

Expected of this command on two CPU cores: 51 minutes, test accuracy 95.9 %
(last checkpoint), epsilon 0.4984 for a participant. Without privacy
(private=0,participants=16000,steps=1000 with the same width, inner_steps and
query): 98.5 %. See experiments/results/. The default width of 64 with five
inner steps is for an accelerator.

The images recur: with the default arguments up to 1881 participants hold the
same class, and up to 228 hold the same image. These public counts are in
config.hierarchy.most_copies, and training checks them against the data. A
participant has a guarantee. A class and an image have no useful one
(`episodic-dp account` prints them): after 250 steps an image's epsilon is above
50, and the bounds that include the sampler's error are in the millions. For
other numbers of participants, queries or classes give the counts after the
colon, such as class_copies=98,image_copies=20; counts that are too small are
refused, and the error has the true ones.

Arguments after the colon: private (1), width (64), participants (400000), rate
(0.004: share of the participants that a step samples), inner_steps (5), steps
(250), query (1: query images per class of a training task), way (5), shot (1),
class_copies (0: the known number, or none), image_copies (0: the same).
"""

from episodic_dp import options
from episodic_dp import plain
from episodic_dp.config import defaults
from episodic_dp.run import Run

# (participants, way, images of a class) -> the largest number of participants
# that hold the same class, and the same image.
_MOST_COPIES = {(400_000, 5, 2): (1881, 228), (400_000, 5, 5): (1881, 521)}


def omniglot(
    *,
    private: bool = True,
    width: plain.Count = 64,
    participants: plain.Count = 400_000,
    rate: plain.Rate = 0.004,
    inner_steps: plain.Count = 5,
    steps: plain.Count = 250,
    query: plain.Count = 1,
    way: plain.Count = 5,
    shot: plain.Count = 1,
    class_copies: plain.Whole = 0,
    image_copies: plain.Whole = 0,
) -> Run:
  """Return the run; the module describes it and its arguments."""
  sizes = (participants, way, shot + query)
  of_class, of_image = _MOST_COPIES.get(sizes, (0, 0))
  copies = {
      "class": class_copies or of_class,
      "image": image_copies or of_image,
  }
  return defaults.participants(
      private=private, way=way, shot=shot, query=query, width=width,
      participants=participants, inner_steps=inner_steps, steps=steps,
      rate=rate,
      data="omniglot",
      data_options=dict(rotate=True),
      most_copies={level: count for level, count in copies.items() if count},
      evaluation=options.Evaluation(shot=shot, every=10),
  )

"""MNIST by its writers: the hand of a person, from one image of each digit.

A task is five digits of one writer: a model adapts to one image of each (or
five) and classifies other images by the same hand. A step draws each of the 539
training writers with probability `rate` (Poisson), then five of their ten
digits, then images of each. Validation and test writers are other people.

One run guarantees something to three units at once (delta = 1e-5):
  writer  all that a person wrote, and so whether they took part;
  digit   what a person wrote of one of the digits, a dozen images or so;
  image   a single one.
The ten digits themselves are labels that all share, and no units: that there
are sevens is public, and so is how many images each writer has of each digit.

With 539 people to hide among every epsilon has its price, which
experiments/results/mnist_writers.md lists. A digit or an image costs hardly
less than its writer: a digit is exchanged for another one, which moves a task
twice as far as its absence would, and where a writer has few images of a digit
all of them are drawn.

Command:
  episodic-dp train --data_dir=DATA --workdir=DIR \\
      --config=mnist_writers

Expected of this command: 34 s of processor time, test accuracy 90 to 93 %
(untrained 45 %, chance 20 %; the noise differs from key to key) at epsilon
3.973 for a writer, 3.928 for a digit and 4.011 for an image; 96 % with
shot=5,query=1.

Arguments after the colon: private (1), shot (1), query (4: images of a digit
that a task is judged on in training), rate (0.5: the share of the writers that
a step draws), noise_multiplier (3.6), width (8), steps (40), learner
(protonet). A task that cannot be filled, for a writer has too few images of a
digit, contributes nothing.
"""

import ml_collections

from episodic_dp import plan
from episodic_dp.config import defaults
from episodic_dp.data import mnist_writers

_WAY = 5


def get_config(text: str = "") -> ml_collections.ConfigDict:
  """Return the config; `text` holds the arguments named above."""
  arg = defaults.arguments(
      text, private=True, shot=1, query=4, rate=0.5, noise_multiplier=3.6,
      width=8, steps=40, learner="protonet",
  )
  per_digit = arg.shot + 1
  writers = mnist_writers.divide(way=_WAY, per_digit=per_digit)["train"]
  return defaults.base(
      steps=arg.steps,
      delta=1e-5,
      plan=dict(
          stages=(
              f"Poisson({arg.rate})", f"FixedSize({_WAY})",
              f"FixedSize({arg.shot + arg.query})",
          ),
          allow_short_units=True,
      ),
      episode=dict(way=_WAY, shot=arg.shot, query=arg.query),
      hierarchy=defaults.hierarchy(plan.Hierarchy.from_sizes(
          [list(writer.counts) for writer in writers],
          levels=mnist_writers.LEVELS,
      )),
      mechanism=defaults.mechanism(
          arg.private,
          clip_unit=mnist_writers.LEVELS[0],
          clip_norm=1.0,
          noise_multiplier=arg.noise_multiplier,
      ),
      data=dict(
          name=mnist_writers.NAME, options=dict(way=_WAY, per_digit=per_digit)
      ),
      checkpoint_every=10,
      model=dict(width=arg.width),
      learner=dict(name=arg.learner),
      optimizer=dict(rate=0.03, final_rate=0.003),
      evaluation=dict(shot=arg.shot, every=10),
  )

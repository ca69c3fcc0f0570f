"""MNIST by its writers: the hand of a person, from one image of each digit.

A task is five digits of one writer. A model adapts to one image of each (or
five) and classifies other images by the same writer. A step samples each of the
539 training writers with probability `rate` (Poisson), then five of their ten
digits, then images of each. Validation and test writers are other people.

One run gives guarantees for three units at once (delta = 1e-5):
  writer  all images of a person, and so whether they took part;
  digit   a person's images of one digit, about a dozen;
  image   a single image.
The ten digits themselves are labels that all writers share, not units: that
there are sevens is public, and so is the number of images that each writer has
of each digit.

With 539 people every epsilon costs accuracy;
experiments/results/mnist_writers.md has the numbers. The epsilon of a digit or
an image is hardly smaller than that of its writer. A removed digit is replaced
by another one, which moves a task twice as far as removing the writer, and a
writer with few images of a digit gives all of them.

Command:
  episodic-dp train --data_dir=DATA --workdir=DIR \\
      --config=mnist_writers

Expected of this command: about a minute, test accuracy 91 to 94 %, one image a
call (untrained 42 to 49 %, chance 20 %; the noise differs from key to key) at
epsilon 3.973 for a writer, 3.928 for a digit and 4.011 for an image; 98 % with
shot=5,query=1.

Arguments after the colon: private (1), shot (1), query (4: query images of a
digit in a training task), rate (0.5: share of the writers that a step samples),
noise_multiplier (3.6), width (8), steps (40), learner (protonet). A task that
cannot be filled, because a writer has too few images of a digit, contributes
nothing.
"""

from episodic_dp import options
from episodic_dp import plain
from episodic_dp import plan
from episodic_dp.config import defaults
from episodic_dp.data import mnist_writers as source
from episodic_dp.run import Data
from episodic_dp.run import Run

_WAY = 5


def mnist_writers(
    *,
    private: bool = True,
    shot: plain.Count = 1,
    query: plain.Count = 4,
    rate: plain.Rate = 0.5,
    noise_multiplier: plain.NotNegative = 3.6,
    width: plain.Count = 8,
    steps: plain.Count = 40,
    learner: options.LearnerName = "protonet",
) -> Run:
  """Return the run; the module describes it and its arguments."""
  per_digit = shot + 1
  writers = source.divide(way=_WAY, per_digit=per_digit)["train"]
  return Run(
      steps=steps,
      delta=1e-5,
      plan=defaults.people(rate, _WAY, shot, query, allow_short_units=True),
      hierarchy=plan.Hierarchy.from_sizes(
          [list(writer.counts) for writer in writers], levels=source.LEVELS
      ),
      mechanism=defaults.mechanism(
          private,
          clip_unit=source.LEVELS[0],
          clip_norm=1.0,
          noise_multiplier=noise_multiplier,
      ),
      data=Data(
          name=source.NAME, options=dict(way=_WAY, per_digit=per_digit)
      ),
      checkpoint_every=10,
      model=options.Network(width=width),
      learner=options.LearnerOptions(name=learner, rotate_support=True),
      optimizer=options.Optimizer(rate=0.03, final_rate=0.003),
      evaluation=options.Evaluation(shot=shot, every=10),
  )

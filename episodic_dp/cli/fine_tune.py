"""Compares initialisations: each is fine-tuned on the same test tasks.

  episodic-dp fine-tune --workdir=DIR[,DIR...] --out=OUT \\
      [--shots=1,5,10,15,20] [--steps=30] [--config=FILE]

Takes runs of episodic-dp train of any learner whose network ends in a head
(MAML and its relatives, supervised learning; private or not) and the random
initialisation, trains each by gradient descent on the support set of every test
task, and measures it on the query set: the comparison of section 6.5 of
"Meta-Learning with Differential Privacy" (DP-MAML). All have one network, down
to its norm. A head that was trained for tasks of as many classes is kept; any
other is replaced by zeros, and that of the random initialisation is random.

The test tasks are those of --config, or of the first run: its data, way, query,
number and public seed. Prints a table with 95 % intervals and the guarantee
that each run states, and writes OUT/fine_tuning.json. The guarantee holds after
fine-tuning, too, for the data of the training run; nothing protects the support
sets.
"""

from collections.abc import Sequence

from absl import flags

from episodic_dp import errors
from episodic_dp.analysis import initialisations
from episodic_dp.cli import devices
from episodic_dp.cli import shared_flags
from episodic_dp.config import RunConfig


def main(argv: Sequence[str]) -> None:
  """Fine-tune, print the table and write the numbers."""
  del argv
  values = flags.FLAGS
  try:
    shots = [int(part) for part in values.shots]
  except ValueError as e:
    raise errors.RunError(
        f"--shots={','.join(values.shots)}: give whole numbers such as 1,5,10"
    ) from e
  devices.log_devices()
  results = initialisations.fine_tune(
      values.workdir,
      values.out,
      shots=shots,
      config=values.config and RunConfig.parse(
          values.config, data_dir=values.data_dir
      ),
      data_dir=values.data_dir,
      download=values.download,
      steps=values.steps,
      rate=0.1,
      body=True,
      optimizer="sgd",
  )
  print(initialisations.table(results))


def define_flags() -> None:
  """Define the flags of the runs, the test tasks and the fine-tuning."""
  flags.DEFINE_list("workdir", None, "Folders of the runs.", required=True)
  shared_flags.define_out("Folder of the results.", required=True)
  shared_flags.define_config(
      required=False, what="Whose test tasks; by default the first run's."
  )
  flags.DEFINE_list(
      "shots", ["1", "5", "10", "15", "20"], "Support images of each class."
  )
  flags.DEFINE_integer("steps", 30, "Steps on the support set.", 1)
  shared_flags.define_data()

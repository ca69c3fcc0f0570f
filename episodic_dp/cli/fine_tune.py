"""Compares initialisations: each is fine-tuned on the same test tasks.

  episodic-dp fine-tune --workdir=DIR[,DIR...] --out=OUT \\
      [--shots=1,5,10,15,20] [--steps=30] [--config=FILE]

Takes runs of episodic-dp train of any learner whose network ends in a head
(MAML and its relatives, supervised learning; private or not) and the random
initialisation, trains each on the support set of every test task, and measures
it on the query set: the comparison of section 6.5 of "Meta-Learning with
Differential Privacy" (DP-MAML). All have one network, down to its norm. A head
that was trained for tasks of as many classes is kept; any other is replaced by
zeros, and that of the random initialisation is random.

The test tasks are those of --config, or of the first run: its data, way, query
and public seed. Prints a table with 95 % intervals and the guarantee that each
run states, and writes OUT/fine_tuning.json and .png. What is stated holds after
fine-tuning too, for the data of the training run; nothing protects the support
sets. A run may lie on an object store (s3://, gs://).
"""

from collections.abc import Sequence
import contextlib

from absl import flags

from episodic_dp import errors
from episodic_dp.analysis import fine_tune
from episodic_dp.analysis import fine_tune_report
from episodic_dp.cli import devices
from episodic_dp.cli import shared_flags
from episodic_dp.config import RunConfig
from episodic_dp.training import remote


def _whole_numbers(text: Sequence[str]) -> list[int]:
  try:
    return [int(part) for part in text]
  except ValueError as e:
    raise errors.RunError(
        f"--shots={','.join(text)}: give whole numbers such as 1,5,10"
    ) from e


def main(argv: Sequence[str]) -> None:
  """Fine-tunes, prints the table and writes it with its picture."""
  del argv
  values = flags.FLAGS
  devices.log_devices()
  with contextlib.ExitStack() as fetched:
    results = fine_tune.fine_tune(
        [fetched.enter_context(remote.fetched(w)) for w in values.workdir],
        values.out,
        shots=_whole_numbers(values.shots),
        config=values.config and RunConfig.parse(
            values.config, data_dir=values.data_dir
        ),
        data_dir=values.data_dir,
        download=values.download,
        tasks=values.tasks,
        steps=values.steps,
        rate=values.rate,
        body=values.body,
        optimizer=values.optimizer,
    )
  print(fine_tune_report.table(results))


def define_flags() -> None:
  """Of the runs, the test tasks, and how they are fine-tuned on."""
  flags.DEFINE_list("workdir", None, "Folders of the runs.", required=True)
  shared_flags.define_out("Folder of the results.", required=True)
  shared_flags.define_config(
      required=False, what="Whose test tasks; by default the first run's."
  )
  flags.DEFINE_list(
      "shots", ["1", "5", "10", "15", "20"], "Support images of each class."
  )
  flags.DEFINE_integer(
      "tasks", None, "Test tasks; by default config.evaluation.test_tasks."
  )
  flags.DEFINE_integer("steps", 30, "Steps on the support set.")
  flags.DEFINE_float("rate", 0.1, "Of these steps.")
  flags.DEFINE_bool("body", True, "Train all layers, not the head alone.")
  flags.DEFINE_enum("optimizer", "sgd", ("adam", "sgd"), "Of these steps.")
  shared_flags.define_data()

"""Attack released meta-models: guess who took part in the training.

  episodic-dp membership --read_private_training_data \\
      --workdir=DIR [--workdir_other=DIR ...] [--out=DIR]

DIR is a folder of episodic-dp train. In a checkout it may also be the folder of
`make train`, whose private and plain run are attacked together. The attacker
adapts the last checkpoint to a person's support examples, and calls the person
a member if the loss on the person's query examples is small
(`episodic_dp.analysis.membership_attack`). The attack judges each participant
by the mean over several tasks, and each example singly. Members are the first
participants of the training data. The others are held-out participants of the
test split; built-in data have any number of them.

The command writes membership.json, membership.md and membership.png. They show
the rates of true positives at small rates of false positives with 95 %
intervals, the area under the curve, and the most that the run's (epsilon,
delta) allows. For examples this limit is the participant's guarantee, since an
example outside the training data comes with a participant outside it.

The attack reads the private training data, and no noise protects its results.
Therefore it needs the flag, and by default it writes to the private/ folder of
the first run, which only the data holder should read. For runs on public data
--out=DIR writes elsewhere.
"""


from absl import flags

from episodic_dp.analysis import membership_attack
from episodic_dp.cli import devices
from episodic_dp.cli import shared_flags
from episodic_dp.errors import RunError
from episodic_dp.output import files
from episodic_dp.training import workdir as workdir_lib


def main(values: flags.FlagValues) -> None:
  """Attack the runs, print the table and write it with its figure."""
  if not values.read_private_training_data:
    raise RunError(
        "this attack reads the private training data, and no noise protects"
        " its results: give --read_private_training_data if you may read these"
        " data"
    )
  devices.log_devices()
  runs = membership_attack.find([values.workdir, *values.workdir_other])
  if values.out:
    files.check_folder(values.out)
  results = membership_attack.attack(
      runs,
      participants=values.participants,
      tasks=values.tasks,
      seed=0,
      data_dir=values.data_dir,
      download=values.download,
  )
  print(membership_attack.table(results))
  out = values.out or workdir_lib.make_private(
      workdir_lib.key_path(values.workdir).parent
  )
  path = membership_attack.write(results, out, _command(values))
  print(f"{path} was computed from private training data without protection")


def _command(values: flags.FlagValues) -> str:
  """Return the command, with DIR in place of the folders."""
  parts = ["episodic-dp membership --read_private_training_data --workdir=DIR"]
  parts += ["--workdir_other=DIR"] * len(values.workdir_other)
  parts += [
      f"--{name}={values[name].value}"
      for name in ("participants", "tasks")
      if values[name].value != values[name].default
  ]
  return " ".join(parts)


def define_flags() -> None:
  """Define the flags of the runs, their data, and who is attacked."""
  shared_flags.define_workdir("Folder of a run, or of several.")
  flags.DEFINE_multi_string(
      "workdir_other", [], "Another such folder, for the same table."
  )
  flags.DEFINE_bool(
      "read_private_training_data",
      False,
      "Read the private training data; the results are not protected.",
  )
  shared_flags.define_out(
      "Folder of the results; by default WORKDIR/private."
  )
  shared_flags.define_data()
  flags.DEFINE_integer(
      "participants",
      4000,
      "Largest number of members, and of others, to attack.",
      lower_bound=2,
  )
  flags.DEFINE_integer(
      "tasks", 8, "Average tasks of each, whose losses are averaged.", 1
  )

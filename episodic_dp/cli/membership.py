"""Attack released meta-models: who took part in the training?

  episodic-dp membership --read_private_training_data \\
      --workdir=DIR [--workdir_other=DIR ...] [--out=DIR]

DIR is a folder of episodic-dp train, or in a checkout of `make train`, whose
private and plain run are attacked side by side. The attacker adapts the last
checkpoint to somebody's support examples and calls them a member where the loss
on their query examples is small (`episodic_dp.analysis.membership_attack`):
once for each participant, by the mean over several tasks, and once for each
single example. Members are the first participants of the training data; the
others are held-out participants, of the test split (of the built-in data as
many as are asked for).

Writes membership.json, membership.md and membership.png: the rates of true
positives at small rates of false ones with 95 % intervals, the area under the
curve, and the most that the run's (epsilon, delta) allows. For examples that is
the participant's guarantee, since an example that was not trained on comes with
a participant who was not either.

This reads the private training data, and no noise protects what it writes:
hence the flag, and hence the place, the private/ folder of the first run, which
is for the data holder's eyes. With --out it goes elsewhere; that is for runs on
data that are public anyway.
"""


from absl import flags

from episodic_dp.analysis import membership_attack
from episodic_dp.cli import devices
from episodic_dp.cli import shared_flags
from episodic_dp.output import files
from episodic_dp.training import workdir as workdir_lib


def main(values: flags.FlagValues) -> None:
  """Attack the runs, print the table and write it with its figure."""
  if not values.read_private_training_data:
    raise ValueError(
        "this attack reads the private training data, and no noise protects"
        " what it writes: say --read_private_training_data if they are yours to"
        " read"
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
  print(f"{path} is made of private training data, and nothing protects it")


def _command(values: flags.FlagValues) -> str:
  """Write the command, with DIR for the folders."""
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
      "workdir_other", [], "Another such folder, to be shown with it."
  )
  flags.DEFINE_bool(
      "read_private_training_data",
      False,
      "Yes, read the private training data: nothing protects the results.",
  )
  shared_flags.define_out(
      "Folder of the results; by default WORKDIR/private."
  )
  shared_flags.define_data()
  flags.DEFINE_integer(
      "participants",
      4000,
      "How many members, and how many others, are attacked at most.",
      lower_bound=2,
  )
  flags.DEFINE_integer(
      "tasks", 8, "Tasks of each, on average, whose losses are averaged.", 1
  )

"""Attacks released meta-models: who took part in the training?

  episodic-dp membership --read_private_training_data \\
      --workdir=DIR [--workdir_other=DIR ...] [--out=DIR]

DIR is a folder of episodic-dp train, or in a checkout of `make train`, whose
private and plain run are attacked side by side. The attacker adapts the last
checkpoint to somebody's support examples and calls them a member where the loss
on their query examples is small (`episodic_dp.auditing.membership`): once for
each participant, by the mean over several tasks, and once for each single
example. Members are participants of the training data; the others are held-out
participants, of the test split (of the built-in data as many as are asked for).

Writes membership.json, membership.md and membership.png: the rates of true
positives at small rates of false ones with 95 % intervals, the area under the
curve, and beside them the most that the run's (epsilon, delta) allows. For
examples that is the participant's guarantee, since an example that was not
trained on comes with a participant who was not either.

This reads the private training data, and what it writes is knowledge from them
that no noise protects: hence the flag, and hence the place, the private/ folder
of the first run, which is for the data holder's eyes. With --out it goes
elsewhere; that is for runs on data that are public anyway.

In a checkout, the runs of experiments/results/membership.md (data that are
built in):
  make train WORKDIR=RUNS
  episodic-dp train --workdir=few_participants \\
      --config=glyphs:$FEW \\
      --config.evaluation.every=500 --config.checkpoint_every=500
with FEW=private=0,participants=25,rate=0.4,width=16,steps=1500.
"""

from collections.abc import Sequence
import contextlib

from absl import flags

from episodic_dp.analysis import membership
from episodic_dp.analysis import membership_report
from episodic_dp.cli import devices
from episodic_dp.cli import shared_flags
from episodic_dp.output import files
from episodic_dp.training import keys
from episodic_dp.training import remote
from episodic_dp.training import stores


def _command() -> str:
  """The command, with DIR for the folders."""
  parts = ["episodic-dp membership --read_private_training_data"]
  values = flags.FLAGS
  parts += ["--workdir=DIR"]
  parts += ["--workdir_other=DIR"] * len(values.workdir_other)
  parts += [
      f"--{name}={values[name].value}"
      for name in ("participants", "tasks", "seed")
      if values[name].value != values[name].default
  ]
  return " ".join(parts)


def main(argv: Sequence[str]) -> None:
  """Attacks the runs, prints the table and writes it with its picture."""
  del argv
  values = flags.FLAGS
  if not values.read_private_training_data:
    raise ValueError(
        "this attack reads the private training data, and no noise protects"
        " what it writes: say --read_private_training_data if they are yours to"
        " read"
    )
  devices.log_devices()
  if stores.is_url(values.workdir) and not values.out:
    raise ValueError(
        f"--workdir={values.workdir} lies on an object store, and what is"
        " written here is private: say --out=DIR, a folder of this machine"
    )
  with contextlib.ExitStack() as fetched:
    targets = membership.find(
        [
            fetched.enter_context(remote.fetched(workdir))
            for workdir in (values.workdir, *values.workdir_other)
        ],
        data_dir=values.data_dir,
    )
    out = values.out or keys.private_folder(values.workdir)
    files.check_folder(out)
    results = membership.attack(
        targets,
        participants=values.participants,
        tasks=values.tasks,
        seed=values.seed,
        data_dir=values.data_dir,
        download=values.download,
    )
  print(membership_report.table(results))
  path = membership_report.write(results, out, _command())
  print(f"{path} is made of private training data, and nothing protects it")


def define_flags() -> None:
  """Of the runs, their data, and who is attacked."""
  shared_flags.define_workdir("Folder of a run, or of several.")
  flags.DEFINE_multi_string(
      "workdir_other", [], "Another such folder, to be shown beside it."
  )
  flags.DEFINE_bool(
      "read_private_training_data",
      False,
      "Yes, read the private training data: what is written is not protected.",
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
      "tasks", 8, "Tasks of each, whose losses are averaged.", lower_bound=1
  )
  shared_flags.define_seed(
      "Public seed of who is attacked, with which tasks."
  )

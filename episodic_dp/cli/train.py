"""Train a meta-learner with differential privacy, or resume a run.

  episodic-dp train --config=glyphs \\
      --workdir=DIR

The config describes the sampling, the release and the number of steps. Every
field can be set on the command line (--config.steps=10), and most config files
take arguments after a colon (--config=glyphs:private=0).

The command resumes a run whose --workdir has a checkpoint: after a kill or a
SIGTERM, the same command ends with the same parameters bit for bit. If an input
of the steps has changed (a field of the config, a version, the number of
devices), it refuses to resume and names the change. --resume=fork then resumes
from the last checkpoint under a fresh key, and the ledger charges again the
steps that may have been released since. --resume=auto does so only if
necessary, which suits launchers. Other data, another release or another learner
need a new folder.

On SIGTERM or SIGUSR1, which schedulers send, and at the end of --time_limit=55m
the run saves a checkpoint after the current step and ends with status 75: queue
the same command again. The limit counts from the start of the process, and also
ends reading and compiling. Ctrl-C does the same with status 130; a second
Ctrl-C ends the run at once. Status 0 means that all steps are done. Status 1 is
an error.

The folder holds config.json, metrics.jsonl, guarantee.json, released.json,
checkpoints/, two pictures, tensorboard/ and private/. The secret key is in
private/: let nobody read it. The folder may be on an object store (gs://,
s3://). The key then stays on this machine, in ~/.episodic_dp/keys or at
--key_file.

The clip norm is fixed, or follows a quantile of the gradients' norms at no
further cost (--config.mechanism.clipping=private_quantile with .clip_quantile,
.clip_rate and .count_noise; see plan.Mechanism). clipping=percentile_window,
with .clip_percentile and .clip_window, computes it from raw norms as DP-MAML
did. Such a run has no guarantee, and its checkpoints hold norms of single
tasks.

All devices share the tasks of a step, or --config.compute.devices=N of them.
Several processes train together if srun or mpirun starts them, or if all get
the same command and --coordinator=HOST:PORT --num_processes=N --process_id=I.
Only process 0 uses --workdir. If one process is lost, the others end within
half a minute, with a status other than 0.

launch/launch.py --sweep=config.seed=0,1,2 trains several runs with separate
keys. episodic-dp compare prints their mean. The mean costs the epsilon of all
runs together, which episodic-dp account --ledger prints.

--epsilon=2 computes the noise with which all steps together spend epsilon 2 for
--config.privacy_unit (by default the primary level) at --delta (by default the
largest power of ten below 1 / (10 N), for N units), and trains with it. With
--neighbours=replace-one this epsilon is for replacing the data of one unit; the
guarantees that are printed and written are for adding or removing it.

--export=MODEL also writes the trained model to a new folder, as episodic-dp
export does for the last checkpoint.
"""

import sys

from absl import flags

from episodic_dp import training
from episodic_dp.cli import app
from episodic_dp.cli import devices
from episodic_dp.cli import exit_status
from episodic_dp.cli import export
from episodic_dp.cli import interrupts
from episodic_dp.cli import shared_flags
from episodic_dp.config import solving
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.run import Run
from episodic_dp.training import processes
from episodic_dp.training import stopping

CONFIG = Run


def define_flags() -> None:
  """Define the flags of the run, its data, its end and its processes."""
  shared_flags.define_config()
  shared_flags.define_workdir(
      "Folder of the run: created, or resumed if it holds one."
  )
  shared_flags.define_data()
  shared_flags.define_resume()
  flags.DEFINE_string(
      "time_limit",
      None,
      "Save and end with status 75 before this time: 90s, 55m, 11h or 1h30m"
      " after the start of the process.",
  )
  flags.DEFINE_float(
      "epsilon",
      None,
      "Spend this epsilon for the privacy unit, over all steps: sets"
      " --config.mechanism.noise_multiplier.",
  )
  shared_flags.define_neighbours()
  flags.DEFINE_string(
      "export", None, "New folder of the trained model, for others to load."
  )
  # For `devices.join`.
  flags.DEFINE_string(
      "coordinator",
      None,
      "HOST:PORT of process 0, or 'auto' if JAX knows the cluster.",
  )
  flags.DEFINE_integer(
      "num_processes", None, "Number of processes that train together.", 1
  )
  flags.DEFINE_integer(
      "process_id", None, "The number of this process, from 0.", 0
  )


def main(values: flags.FlagValues) -> None:
  """Train, and print the guarantees of the steps that were taken."""
  deadline = None
  if values.time_limit is not None:
    deadline = stopping.deadline(values.time_limit, interrupts.BEGAN)
    interrupts.end_at(deadline)
  if values.export is not None:
    files.check_outside(values.export, values.workdir, "--workdir")
    files.check_new_folder(values.export)
  shared_flags.check_workdir(values)
  with devices.leaving():
    devices.join(values.coordinator, values.num_processes, values.process_id)
    status = exit_status.of(_train(values, deadline).stopped)
    if values.export is not None and processes.first() and not status:
      export.write(values.workdir, values.export, values.data_dir)
  sys.exit(status)


def _train(
    values: flags.FlagValues, deadline: float | None
) -> training.Result:
  """Train a run; process 0 prints its summary."""
  devices.log_devices()
  config = shared_flags.run(values)
  if config.data.name == "own_data":  # Of which every file is an example.
    for place in (values.workdir, values.export or values.workdir):
      files.check_outside(place, values.data_dir, "--data_dir")
  if values.epsilon is None and values["neighbours"].present:
    app.fail("--neighbours goes with --epsilon: leave it out")
  if values.epsilon is not None:
    with phases.phase("computing the noise"):
      config, found = solving.spend(
          config, values.epsilon, neighbours=values.neighbours
      )
    if processes.first():
      print(found.sentence(), file=sys.stderr, flush=True)
  with phases.phase("reading the data", at_once=True):
    spec = config.build(
        data_dir=values.data_dir, download=values.download
    )
  result = training.train(
      spec,
      values.workdir,
      resume=values.resume,
      key_file=values.key_file,
      deadline=deadline,
  )
  interrupts.ignore()
  if processes.first():
    print(result)
    print(f"  results: {values.workdir}", flush=True)
  return result

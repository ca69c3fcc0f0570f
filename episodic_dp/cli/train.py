"""Trains a meta-learner with differential privacy, or resumes a run.

  episodic-dp train --config=glyphs \\
      --workdir=DIR

The config file says what is sampled, what is released and for how many steps;
every field can be set from the command line (--config.steps=10), and most files
take arguments after a colon (--config=glyphs:private=0).

A run whose --workdir has a checkpoint goes on from there: the same command
again, after a kill or a SIGTERM, ends with the same parameters bit for bit. The
folder holds config.json, metrics.jsonl, guarantee.json, checkpoints/, two
pictures, tensorboard/ and private/ (the secret key: keep it from readers).

The clip norm is fixed, or follows a quantile of the gradients' norms at no
further cost (--config.mechanism.clipping=private_quantile with .clip_quantile,
.clip_rate and .count_noise; see plan.Mechanism). percentile_window, with
.clip_percentile and .clip_window, takes it from raw norms as DP-MAML did: such
a run has no formal guarantee, and its checkpoints hold norms of single tasks.

The tasks of a step are shared out over all devices, or over
--config.compute.devices=N of them. Several processes train together when all
are started with the same command and --coordinator=HOST:PORT --num_processes=N
--process_id=I, or by srun or mpirun; process 0 alone uses --workdir.

With --config.target_epsilon=E a run takes no more steps than E allows at
--config.target_level, a number that is fixed before the first step.
"""

from absl import flags
from ml_collections import config_flags

from episodic_dp import training
from episodic_dp.cli import app
from episodic_dp.config import build
from episodic_dp.training import processes
from episodic_dp.training import reporting

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "A file of episodic_dp/config/presets/.", lock_config=True
)
flags.mark_flag_as_required("config")
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Folder of the run: made, or resumed where it has one.",
    required=True,
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    None,
    "Folder of the data sets that are not built in, or your own data.",
)
_DOWNLOAD = flags.DEFINE_bool(
    "download", False, "Fetch the data files that --data_dir does not have."
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator",
    None,
    "HOST:PORT of process 0, or 'auto' where JAX knows the cluster.",
)
_NUM_PROCESSES = flags.DEFINE_integer(
    "num_processes", None, "How many processes train together.", 1
)
_PROCESS_ID = flags.DEFINE_integer(
    "process_id", None, "The number of this process, from 0.", 0
)


def main(argv) -> None:
  del argv
  app.join(_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value)
  app.log_devices()
  experiment = build.build(
      _CONFIG.value, data_dir=_DATA_DIR.value, download=_DOWNLOAD.value
  )
  result = training.train(experiment.job, _WORKDIR.value)
  if processes.first():
    print(reporting.summary(result, experiment.job.steps))

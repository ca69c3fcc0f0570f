"""Learn one posterior from many clients, privately, or resume a run.

  episodic-dp pvi --config=adult --data_dir=DATA --workdir=DIR
  episodic-dp pvi --config=own_table --data_dir=DIR --workdir=DIR

In partitioned variational inference each client has a separate factor of the
posterior, which it updates by differentially private steps on its own rows.
Every client has a separate guarantee, and stops before it would exceed
--config.target_epsilon. The joint release has the largest of these epsilons,
since no row has two clients.

--config.unit=client protects whole clients. A round samples clients
(--config.server.share), and only the noised sum of their clipped changes
leaves them. There is one guarantee, of all rounds.

--epsilon=2 computes the noise with which all rounds together spend epsilon 2 at
--delta, for every client or for all, and learns with it.

The same command resumes a stopped run from its last checkpoint and ends with
the same posterior bit for bit. If an input of the visits has changed, the
command refuses to resume. --resume=fork then resumes under a fresh key, and
charges again the rounds that may have been released since the checkpoint.

The folder holds config.json, metrics.jsonl, posterior.json (means and
variances), guarantees.json, guarantees/ (a privacy statement of each client for
episodic-dp verify), checkpoints/ and private/. The secret key is in private/,
and with --config.unit=client so are the checkpoints, which hold what clients
remember: let nobody read it.
"""

import sys

from absl import flags

from episodic_dp import plain
from episodic_dp.cli import devices
from episodic_dp.cli import exit_status
from episodic_dp.cli import shared_flags
from episodic_dp.config import presets
from episodic_dp.config import pvi as config_lib
from episodic_dp.output import phases
from episodic_dp.pvi import program

CONFIG = config_lib.Config


def define_flags() -> None:
  """Define the flags of the run and its rows."""
  shared_flags.define_config(names=presets.PVI_NAMES)
  shared_flags.define_workdir(
      "Folder of the run: created, or resumed if it holds one."
  )
  shared_flags.define_data(download=False)
  shared_flags.define_resume()
  flags.DEFINE_float(
      "epsilon",
      None,
      "Spend this epsilon over all rounds: sets"
      " --config.visit.noise_multiplier and --config.target_epsilon.",
  )


def main(values: flags.FlagValues) -> None:
  """Run, and print the cost of each client."""
  devices.log_devices()
  config = plain.with_changes(
      config_lib.parse(presets.made(values.config, presets.PVI_NAMES)),
      presets.read(shared_flags.fields(values)), name="config",
  )
  shared_flags.check_workdir(values)
  with phases.phase("reading the data", at_once=True):
    rows = config_lib.load(config, values.data_dir)
  if values.epsilon is not None:
    with phases.phase("computing the noise"):
      config = config_lib.spend(config, rows, values.epsilon)
    print(
        f"all {config.rounds} rounds spend epsilon {values.epsilon:g} with"
        f" --config.visit.noise_multiplier={config.visit.noise_multiplier}",
        file=sys.stderr, flush=True,
    )
  with phases.phase("describing the run"):
    spec = config_lib.build(config, rows)
  result = program.run(
      spec, values.workdir, resume=values.resume, key_file=values.key_file
  )
  print(program.summary(spec, result))
  status = exit_status.of(result.stopped)
  if len(rows.test.labels) and status == exit_status.FINISHED:
    accuracy, log_likelihood = program.score(
        spec.learner, result.posterior, config_lib.examples(rows.test)
    )
    print(
        f"  test: accuracy {accuracy:.4f}, log likelihood {log_likelihood:.4f}"
    )
  sys.exit(status)

"""Attack the guarantees of a config, and measure epsilon.

  episodic-dp audit --config=glyphs
  episodic-dp audit --config=omniglot \\
      --level=participant --steps=50 --runs=100000 --out=DIR

The accountant bounds epsilon from above; an attack bounds it from below.
Thousands of small runs use the sampling plan, clipping and noise of the config.
Half of them have one worst-case record, and half do not. An attacker who knows
everything else guesses for each run whether it has the record. A measured
epsilon above the claimed one refutes the claim, and the exit status is 1. So
does noise that is not the claimed one or recurs from step to step, as a test of
the sums of all runs finds, which is wrong once in a million audits at most. A
measured epsilon far below the claim may also mean that something hides a leak.

The runs have fewer participants than the config if the rates, the distances and
so the claim stay the same. Delta is 0.01 instead of the config's, because N
runs cannot test a delta far below 1 / N. The claim is computed again for this
delta. The command writes DIR/audit.json and DIR/audit.png, which shows both
curves over the steps.
"""

import pathlib

from absl import flags
from absl import logging

from episodic_dp.auditing import claims
from episodic_dp.cli import app
from episodic_dp.cli import devices
from episodic_dp.cli import shared_flags
from episodic_dp.output import files
from episodic_dp.output import plotting


def define_flags() -> None:
  """Define the flags of the config, the attack, and the results."""
  shared_flags.define_config()
  shared_flags.define_data(download=False)
  flags.DEFINE_string(
      "level", None, "The privacy unit; by default all that can be audited."
  )
  flags.DEFINE_integer(
      "runs", 50_000, "Runs with the record, and as many without it.", 2,
      10_000_000,
  )
  flags.DEFINE_integer(
      "steps", None, "Steps of each run; by default those of the config.", 1
  )
  shared_flags.define_out("Folder for audit.json and audit.png.", "runs/audit")
  shared_flags.define_format()


def main(values: flags.FlagValues) -> None:
  """Attack, write the results, and fail if a claim is refuted."""
  config = shared_flags.run(values)
  release = config.release
  if values.level is not None:
    release.hierarchy.level_index(values.level)  # PlanError for unknown levels.
  files.check_folder(values.out)
  devices.log_devices()
  result = claims.audit(
      release,
      values.level,
      steps=config.steps if values.steps is None else values.steps,
      runs=values.runs,
      seed=0,
  )
  folder = pathlib.Path(values.out)
  files.write_json(folder / "audit.json", result)
  plotting.save(claims.draw(result), folder / "audit.png")
  shared_flags.show(result, claims.table(result))
  logging.info("wrote %s and audit.json", folder / "audit.png")
  refuted = claims.verdict(result)
  if refuted:
    app.fail(refuted)

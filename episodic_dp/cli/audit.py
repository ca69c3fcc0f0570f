"""Attacks a config's privacy claims: measured epsilon beside the claimed one.

  episodic-dp audit --config=glyphs
  episodic-dp audit --config=omniglot \\
      --level=participant --steps=50 --runs=100000 --out=DIR

The accountant says what epsilon is at most; an attack shows what it is at
least. Thousands of small runs are made with the config's own sampling plan,
clipping and noise, half of them on data with one record and half without it,
and an attacker who knows all but that guesses which is which. A measured
epsilon above the claimed one refutes the claim: the exit status is 1.

  --canary=worst    data for which the accountant's bound is (nearly) the truth:
                    the measured epsilon should come close to the claimed one,
                    or something hides what should leak
  --canary=natural  a small network and a participant whose classes are mixed
                    up: what may leak of an unusual record (first level only)
  --method=many     many runs, one record
  --method=one      one run, many records, each there or not by a coin: quick,
                    and far from tight (first level, Poisson or a pass)

The population is made smaller where its rates and distances, and so the claim,
stay the same. Delta is that of the audit and not of the config: N runs can show
nothing of a delta far below 1 / N, so the claim is computed again for it.
Written are DIR/audit.json and DIR/audit.png, both curves over the steps.
"""

from collections.abc import Sequence
import json
import pathlib

from absl import flags
from absl import logging

from episodic_dp.analysis import audit_plot
from episodic_dp.auditing import audit
from episodic_dp.auditing import audit_report
from episodic_dp.cli import app
from episodic_dp.cli import devices
from episodic_dp.cli import shared_flags
from episodic_dp.config import RunConfig
from episodic_dp.output import files


def define_flags() -> None:
  """Of the config, the attack, and what is written."""
  shared_flags.define_config()
  shared_flags.define_data(download=False)
  flags.DEFINE_string(
      "level", None, "The privacy unit; by default all that can be audited."
  )
  flags.DEFINE_integer(
      "runs", 50_000, "Runs with the record, and as many without it."
  )
  flags.DEFINE_integer(
      "steps", None, "Steps of each run; by default those of the config."
  )
  flags.DEFINE_enum(
      "canary", "worst", ("worst", "natural"), "The record that is looked for."
  )
  flags.DEFINE_enum(
      "method", "many", ("many", "one"), "Many runs, or one with many records."
  )
  flags.DEFINE_integer("canaries", 1000, "Records of --method=one.")
  flags.DEFINE_float(
      "delta",
      None,
      "At which epsilon is compared; by default 0.01, or 1e-5 for one run.",
  )
  flags.DEFINE_float("confidence", 0.95, "That all measured bounds hold.")
  shared_flags.define_seed("Of the runs; the same seed repeats.")
  shared_flags.define_out("Folder for audit.json and audit.png.", "runs/audit")
  shared_flags.define_format()


def main(argv: Sequence[str]) -> None:
  """Attacks, writes what was found, and fails where a claim is refuted."""
  del argv
  values = flags.FLAGS
  config = RunConfig.parse(values.config, data_dir=values.data_dir)
  release = config.release
  if values.level is not None:
    release.hierarchy.level_index(values.level)  # PlanError names the levels.
  delta = values.delta
  if delta is None:
    delta = 0.01 if values.method == "many" else 1e-5
  options = audit.Options(
      steps=config.steps if values.steps is None else values.steps,
      delta=delta,
      confidence=values.confidence,
      runs=values.runs,
      canary=values.canary,
      method=values.method,
      canaries=values.canaries,
      seed=values.seed,
  )
  files.check_folder(values.out)
  devices.log_devices()
  result = audit.audit(release, options, values.level)
  folder = pathlib.Path(values.out)
  files.write_json(folder / "audit.json", result)
  audit_plot.write(result, folder / "audit.png")
  if values.format == "json":
    print(json.dumps(result, indent=2, allow_nan=False))
  else:
    print(audit_report.table(result))
  logging.info("wrote %s and audit.json", folder / "audit.png")
  refuted = audit_report.verdict(result)
  if refuted:
    app.fail(refuted)

"""A tiny run, maybe one of several processes: WORKDIR STEPS [PORT COUNT ID].

A module to run; process 0 alone uses the folder. "host" leaves the images on
the host, in blocks of one task a device; "secret" draws the key from the
system.
"""

import dataclasses
import sys

from episodic_dp import private
from episodic_dp import training
from episodic_dp.cli import devices
from episodic_dp.cli import exit_status
from episodic_dp.private import meta_step
from episodic_dp.training import processes
from tests.training import tiny_run


def main():
  workdir, *rest = sys.argv[1:]
  meta_step.BLOCK_BYTES = 1  # A block for every task.
  steps, *numbers = (int(word) for word in rest if word.isdigit())
  with devices.leaving():
    if numbers:
      port, count, process = numbers
      devices.join(f"localhost:{port}", count, process)
    # The first alone has the seed: the others are sent the key.
    seed = None if "secret" in rest or not processes.first() else 7
    spec = tiny_run.spec(steps, seed=seed, config={"steps": steps})
    spec = dataclasses.replace(
        spec,
        train=dataclasses.replace(spec.train, resident="host" not in rest),
        compute=private.Compute(microbatch_size=1),
    )
    result = training.train(spec, workdir, resume="auto")
  if processes.first():
    print(result)
  print("took", result.steps, result.stopped, flush=True)
  sys.exit(exit_status.of(result.stopped))


if __name__ == "__main__":
  main()

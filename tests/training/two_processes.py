"""A tiny run as one of several processes: WORKDIR STEPS [PORT COUNT ID].

A script, run by test_processes.py; process 0 alone is given a folder. A last
word "host" leaves the images on the host, in blocks of one task a device.
"""

import dataclasses
import sys

import jax
import tiny_run

from episodic_dp import private
from episodic_dp import training
from episodic_dp.training import processes
from episodic_dp.training import reporting


def main():
  streamed = sys.argv[-1] == "host"
  workdir, steps, *numbers = sys.argv[1 : -1 if streamed else None]
  if numbers:
    port, count, process = map(int, numbers)
    jax.distributed.initialize(f"localhost:{port}", count, process)
  # The first alone is to know this seed: the others hear of the key.
  spec = tiny_run.spec(int(steps), seed=7 if processes.first() else None)
  spec.config["private_seed"] = 7
  spec = dataclasses.replace(
      spec,
      train=dataclasses.replace(spec.train, resident=not streamed),
      compute=private.Compute(block_bytes=1),
  )
  try:
    result = training.train(spec, workdir)
  except training.RunError as e:
    print("refused:", e)
    sys.exit(1)
  print("took", result.steps, result.stopped)
  if processes.first():
    print(reporting.summary(result, int(steps)))


if __name__ == "__main__":
  main()

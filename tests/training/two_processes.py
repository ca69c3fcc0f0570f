"""A tiny run, maybe one of several processes: WORKDIR STEPS [PORT COUNT ID].

A script, run by test_processes.py and others; process 0 alone is given a
folder. Words behind: "host" leaves the images on the host, in blocks of one
task a device; "pairs" computes two tasks at a time; "still" adds parameters
that no task moves, so that they are the noise; "secret" draws the key from the
system; "wait" goes on when its standard input ends.
"""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import tiny_run

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import private
from episodic_dp import training
from episodic_dp.training import processes
from episodic_dp.training import reporting

STILL = 12


def partly_still():
  """The learner of `tiny_run`, with parameters that its loss does not use."""
  model = tiny_run.learner().model

  def init(key):
    return model.init(key) | {"still": jnp.zeros(STILL)}

  return learners.MAML(
      models.Model(
          init,
          model.apply,
          mixes_examples=False,
          input_shape=model.input_shape,
          way=model.way,
      ),
      inner_steps=1,
      inner_rate=0.5,
  )


def a_spec(steps, words):
  """The run that the words describe."""
  # The first alone is to know this seed: the others hear of the key.
  secret = "secret" in words or not processes.first()
  spec = tiny_run.spec(steps, seed=None if secret else 7)
  spec.config["private_seed"] = None if "secret" in words else 7
  learner = partly_still() if "still" in words else spec.learner
  return dataclasses.replace(
      spec,
      train=dataclasses.replace(spec.train, resident="host" not in words),
      learner=learner,
      evaluator=None if "still" in words else spec.evaluator,
      compute=private.Compute(
          block_bytes=1, microbatch_size=1 + ("pairs" in words)
      ),
  )


def main():
  workdir, *rest = sys.argv[1:]
  steps, *numbers = (int(word) for word in rest if word.isdigit())
  words = [word for word in rest if not word.isdigit()]
  if numbers:
    port, count, process = numbers
    jax.distributed.initialize(f"localhost:{port}", count, process)
  try:
    result = training.train(a_spec(steps, words), workdir)
  except training.RunError as e:
    print("refused:", e)
    sys.exit(1)
  print("took", result.steps, result.stopped)
  if processes.first():
    print(reporting.summary(result, steps))
  if "wait" in words:
    print("waiting", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
  main()

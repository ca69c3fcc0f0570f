"""A prior learned privately from few-shot tasks, beside private MAML.

Both see the same participants with the same sampling, steps and noise
multiplier, and so have the same guarantee. Measured on unseen sinusoids: the
squared error, the log likelihood of the query points, and how many of them lie
in the central intervals that should hold half and nine tenths. MAML predicts a
number: it is given the one width that its errors on public validation tasks
have. What the prior is given after training (the noise of a target, and how
much its variances are shrunk) is chosen on the same validation tasks.
"""

from collections.abc import Sequence
import dataclasses
import itertools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.config import build
from episodic_dp.config import RunConfig
from episodic_dp.output import plotting
from episodic_dp.pvi import shared_prior
from episodic_dp.training import saved_runs
from experiments import provenance
from experiments import runs as runs_lib
from experiments.targets import panels

_PRIOR, _MAML = "shared_prior", "maml"
_CLIP_NORM, _RATE, _FINAL = 20.0, 0.1, 0.1
_SMOKE = "participants=2000,rate=0.05,steps=40,inner_steps=1,width=8"
_NOISES = (0.005, 0.01, 0.02, 0.05, 0.1)
_SHRINKS = (0.0, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
_SHARES = (0.5, 0.9)


def runs(scale: str) -> list[runs_lib.Run]:
  """The two learners, with privacy, three keys each."""
  smoke = scale == "smoke"
  return [
      runs_lib.Run(
          name=f"{learner}_{key}", config="sinusoid",
          arguments=_SMOKE if smoke else "private=1",
          labels=dict(learner=learner, key=key),
      )
      for learner in (_PRIOR, _MAML)
      for key in range(1 if smoke else 3)
  ]  # fmt: skip


def finish(
    run: runs_lib.Run,
    folder: str,
    *,
    shared: dict[str, Any],
    data_dir: str | None,
) -> dict[str, Any]:
  """Trains and measures one of the two."""
  del data_dir
  if not shared:
    shared["experiment"] = build.build(RunConfig.parse(run.load()))
  experiment = shared["experiment"]
  workdir = pathlib.Path(folder) / run.name
  spec = experiment.spec
  learner = run.labels["learner"]
  if learner == _PRIOR:
    spec = _with_prior(spec)
  code = provenance.begin(workdir)
  result = training.train(spec, workdir)
  if result.stopped not in ("done", "budget"):
    raise runs_lib.Interrupted(result.stopped)
  checkpoints, last = saved_runs.latest(workdir)
  params = checkpoints.restore(last, spec.learner.init(jax.random.key(0)))[0]
  chosen, measured = _measure(learner, spec, params, experiment)
  return runs_lib.record(run, folder, {
      "code": code,
      "trained": (
          f"{type(spec.learner).__name__}, clip norm"
          f" {spec.release.mechanism.clip_norm:g}"
      ),
      "seconds": round(result.seconds, 1),
      "epsilon": {k: g.epsilon for k, g in result.guarantees.items()},
      "delta": spec.delta,
      "chosen_on_validation": chosen,
      **measured,
  })


def _with_prior(spec: training.TrainingSpec) -> training.TrainingSpec:
  """The same run with another learner; its clip norm and optimiser with it."""
  mechanism = dataclasses.replace(
      spec.release.mechanism, clip_norm=_CLIP_NORM
  )
  schedule = optax.cosine_decay_schedule(_RATE, spec.steps, _FINAL)
  return dataclasses.replace(
      spec,
      learner=shared_prior.SharedPrior(),
      optimizer=optax.sgd(schedule),
      release=spec.release.replace(mechanism=mechanism),
      evaluator=None,
      # On two devices of a CPU no step was seen to end; why is not known.
      devices=1,
      config=dict(spec.config) | {"learner": {"name": _PRIOR}},
  )


def _measure(
    name: str, spec: training.TrainingSpec, params: Any, experiment: Any
) -> tuple[dict[str, float], dict[str, Any]]:
  """What was chosen on validation tasks, and the numbers of the test tasks."""
  splits, episode = experiment.splits, spec.release.plan.episode
  assert episode is not None  # The preset has one.

  def predicted(learner: Any, part: Any) -> tuple[np.ndarray, ...]:
    points = part.images.reshape(-1, episode.shot + episode.query, 1, 1, 2)

    @jax.jit
    @jax.vmap
    def one(points: jax.Array) -> tuple[jax.Array, ...]:
      task = sampling.make_episode(
          jax.random.key(0), points[None], episode, targets=1
      )
      target = task.query.labels[:, 0]
      if name == _PRIOR:
        return *learner.predictive(
            params, task.support, task.query.images
        ), target  # fmt: skip
      mean = learner.predict(params, task.support, task.query.images)[:, 0]
      return mean, jnp.ones_like(mean), target

    return tuple(map(np.asarray, one(jnp.asarray(points))))

  if name == _MAML:
    mean, _, target = predicted(spec.learner, splits.validation)
    width = float(np.sqrt(np.mean((mean - target) ** 2)))
    mean, spread, target = predicted(spec.learner, splits.test)
    return {"width": width}, _numbers(mean, width * spread, target)
  learners = [
      shared_prior.SharedPrior(noise=noise, shrink=shrink)
      for noise, shrink in itertools.product(_NOISES, _SHRINKS)
  ]
  best = max(
      learners,
      key=lambda one: _numbers(*predicted(one, splits.validation))[
          "log_likelihood"
      ],
  )
  chosen = {"noise": best.noise, "shrink": best.shrink}
  return chosen, _numbers(*predicted(best, splits.test))


def _numbers(
    mean: np.ndarray, spread: np.ndarray, target: np.ndarray
) -> dict[str, Any]:
  """Squared error, log likelihood and coverage of all query points."""
  logs = shared_prior.log_density(
      *map(jnp.asarray, (mean, spread, target))
  )
  return {
      "squared_error": float(np.mean((mean - target) ** 2)),
      "log_likelihood": float(np.mean(logs)),
      "coverage": {
          str(share): shared_prior.coverage(mean, spread, target, share)
          for share in _SHARES
      },
  }


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per learner: the mean of its keys, the least and the most."""
  header = [
      "learner", "ε of a participant", "squared error", "log likelihood",
      "in the 50 % interval", "in the 90 % interval", "seconds",
  ]  # fmt: skip
  rows = []
  for found in panels.group(outcomes, "key").values():
    held = [[100 * o["coverage"][str(s)] for o in found] for s in _SHARES]
    rows.append([
        _name(found[0]),
        _epsilon(found),
        panels.spread([o["squared_error"] for o in found], ".4f"),
        panels.spread([o["log_likelihood"] for o in found], ".3f"),
        *(f"{panels.spread(values, '.1f')} %" for values in held),
        f"{np.mean([o['seconds'] for o in found]):.0f}",
    ])
  return header, rows


def _epsilon(found: Sequence[panels.Outcome]) -> str:
  return report.rounded_up(max(o["epsilon"]["participant"] for o in found))


def _name(outcome: panels.Outcome) -> str:
  return str(outcome["labels"]["learner"]).replace("_", " ")


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Coverage beside what it should be."""
  axes = figure.subplots()
  axes.plot([0, 100], [0, 100], label="calibrated", **plotting.REFERENCE)
  for number, found in enumerate(panels.group(outcomes, "key").values()):
    for key, o in enumerate(found):
      axes.plot(
          [100 * float(s) for s in o["coverage"]],
          [100 * v for v in o["coverage"].values()],
          label=None if key else f"{_name(o)}, a line a key",
          **plotting.series(number),
      )
  axes.set_xlabel("the interval should hold (%)")
  axes.set_ylabel("query points of unseen participants in it (%)")
  axes.legend(loc="lower right")


def finding(outcomes: panels.Outcomes) -> str:
  """Error and likelihood of both."""
  parts = [
      f"{_name(found[0])}: squared error"
      f" {np.mean([o['squared_error'] for o in found]):.4f}, log likelihood"
      f" {np.mean([o['log_likelihood'] for o in found]):.2f}, ε"
      f" {_epsilon(found)}"
      for found in panels.group(outcomes, "key").values()
  ]
  return "; ".join(parts) + "."

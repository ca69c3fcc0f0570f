"""A prior learned privately from few-shot tasks, beside private MAML.

Both see the same participants with the same sampling, steps and noise
multiplier, and so have the same guarantee. Measured on unseen sinusoids: the
squared error, the log likelihood of the query points, and how many of them lie
in the central intervals that should hold half and nine tenths. MAML predicts a
number: it is given the one width that its errors on public validation tasks
have. What the prior is given after training (the noise of a target, and how
much its variances are shrunk) is chosen on the same validation tasks.
"""

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
  """The two learners, with privacy."""
  return [
      runs_lib.Run(
          name=name, config="sinusoid",
          arguments=_SMOKE if scale == "smoke" else "private=1",
          labels=dict(learner=name),
      )
      for name in (_PRIOR, _MAML)
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
  if run.name == _PRIOR:
    spec = _with_prior(spec)
  code = provenance.begin(workdir)
  result = training.train(spec, workdir)
  if result.stopped not in ("done", "budget"):
    raise runs_lib.Interrupted(result.stopped)
  checkpoints, last = saved_runs.latest(workdir)
  params = checkpoints.restore(last, spec.learner.init(jax.random.key(0)))[0]
  chosen, measured = _measure(run.name, spec, params, experiment)
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
  """A row per learner."""
  header = [
      "learner", "ε of a participant", "squared error", "log likelihood",
      "in the 50 % interval", "in the 90 % interval", "seconds",
  ]  # fmt: skip
  rows = [
      [
          o["labels"]["learner"].replace("_", " "),
          f"{o['epsilon']['participant']:.4f}",
          f"{o['squared_error']:.4f}",
          f"{o['log_likelihood']:.3f}",
          *(f"{100 * v:.1f} %" for v in o["coverage"].values()),
          f"{o['seconds']:.0f}",
      ]
      for o in outcomes.values()
  ]
  return header, rows


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Coverage beside what it should be."""
  axes = figure.subplots()
  axes.plot([0, 100], [0, 100], label="calibrated", **plotting.REFERENCE)
  for number, (name, o) in enumerate(outcomes.items()):
    shares = [100 * float(s) for s in o["coverage"]]
    held = [100 * v for v in o["coverage"].values()]
    axes.plot(
        shares, held, label=name.replace("_", " "), **plotting.series(number)
    )
  axes.set_xlabel("the interval should hold (%)")
  axes.set_ylabel("query points of unseen participants in it (%)")
  axes.legend(loc="lower right")


def finding(outcomes: panels.Outcomes) -> str:
  """Error and likelihood of both."""
  parts = [
      f"{name.replace('_', ' ')}: squared error {o['squared_error']:.4f}, log"
      f" likelihood {o['log_likelihood']:.2f}, ε"
      f" {o['epsilon']['participant']:.4f}"
      for name, o in outcomes.items()
  ]
  return "; ".join(parts) + "."

"""Runs of a perceptron on a few glyphs, which take seconds."""

import pathlib

import jax
import ml_collections

from episodic_dp import accounting
from episodic_dp import data
from episodic_dp import training
from episodic_dp.config import build
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import glyphs
from episodic_dp.config.presets import glyphs_supervised
from episodic_dp.output import files
from episodic_dp.training import reporting
from episodic_dp.training import workdir

_OPTIONS = dict(
    participants=4, glyphs=8, drawings=6, validation_participants=3,
    test_participants=5, size=12,
)


def splits() -> data.Splits:
  """4 training writers of 8 glyphs, 6 drawings of each."""
  return data.load("glyphs", **_OPTIONS)


def supervised_config(text: str = "") -> ml_collections.ConfigDict:
  """Return a config that learns the 32 training glyphs from 192 drawings."""
  config = glyphs_supervised.get_config(
      f"writers=4,drawings=6,size=12,steps=4,{text}"
  )
  return _tiny(config)


def maml_config(text: str = "") -> ml_collections.ConfigDict:
  """Return a config that learns from one of four writers a step."""
  config = glyphs.get_config(
      f"participants=4,rate=0.3,size=12,steps=2,{text}"
  )
  config.hierarchy.sizes = (4, 8, 6)
  config.data.options.drawings = 6
  config.plan.stages = ("Poisson(0.3)", "FixedSize(5)", "FixedSize(3)")
  return _tiny(config)


def _tiny(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  config.data.options.validation_participants = 3
  config.data.options.test_participants = 5
  config.model.name, config.model.widths = "mlp", (8,)
  config.private_seed = 1
  config.checkpoint_every = config.evaluation.every = 2
  config.evaluation.validation_tasks = config.evaluation.test_tasks = 8
  config.evaluation.query = 2
  return config


def save(
    config: ml_collections.ConfigDict, folder: pathlib.Path, steps: int
) -> None:
  """Write the folder of a run with random parameters."""
  parsed = RunConfig.parse(config)
  folder.mkdir(parents=True)
  files.write_json(folder / workdir.CONFIG, parsed.as_json())
  learner, _ = build.make_learners(parsed, (12, 12, 1), None)
  checkpoints = training.checkpoint.Checkpoints(folder)
  checkpoints.save(steps, learner.init(jax.random.key(steps)), {"step": 0})
  files.write_json(
      folder / reporting.GUARANTEE,
      accounting.run_statement(
          accounting.Ledger().add(parsed.release, steps, continued=False),
          delta=1e-5,
          fixed_seed=True,
          planned_steps=steps,
      ),
  )


def train(
    config: ml_collections.ConfigDict, folder, loaded: data.Splits, **options
):
  """Train a config in a folder; return its spec and result."""
  spec = build.build(RunConfig.parse(config), splits=loaded)
  return spec, training.train(spec, folder, **options)

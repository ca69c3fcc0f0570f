"""Runs of a perceptron on a few glyphs, which take seconds."""

import pathlib

import jax

from episodic_dp import accounting
from episodic_dp import data
from episodic_dp import training
from episodic_dp.config import presets
from episodic_dp.output import files
from episodic_dp.run import Run
from episodic_dp.training import reporting
from episodic_dp.training import workdir

_OPTIONS = dict(
    participants=4, glyphs=8, drawings=6, validation_participants=3,
    test_participants=5, size=12,
)


def splits() -> data.Splits:
  """4 training writers of 8 glyphs, 6 drawings of each."""
  return data.load("glyphs", **_OPTIONS)


def supervised_config(text: str = "") -> Run:
  """Return a config that learns the 32 training glyphs from 192 drawings."""
  return _tiny(presets.load(
      f"glyphs_supervised:writers=4,drawings=6,size=12,steps=4,{text}"
  ))


def maml_config(text: str = "") -> Run:
  """Return a config that learns from one of four writers a step."""
  return _tiny(presets.load(
      f"glyphs:participants=4,rate=0.3,size=12,steps=2,{text}"
  ).replace({"hierarchy.sizes": (4, 8, 6), "data.options.drawings": 6}))


def _tiny(config: Run) -> Run:
  return config.replace({
      "data.options.validation_participants": 3,
      "data.options.test_participants": 5,
      "model.name": "mlp",
      "model.widths": (8,),
      "private_seed": 1,
      "checkpoint_every": 2,
      "evaluation.every": 2,
      "evaluation.validation_tasks": 8,
      "evaluation.test_tasks": 8,
      "evaluation.query": 2,
  })


def save(config: Run, folder: pathlib.Path, steps: int) -> None:
  """Write the folder of a run with random parameters."""
  folder.mkdir(parents=True)
  files.write_json(folder / workdir.CONFIG, config.as_json())
  learner, _ = config.make_learners((12, 12, 1), None)
  checkpoints = training.checkpoint.Checkpoints(folder)
  checkpoints.save(steps, learner.init(jax.random.key(steps)), {"step": 0})
  files.write_json(
      folder / reporting.GUARANTEE,
      accounting.run_statement(
          accounting.Ledger().add(config.release, steps, continued=False),
          delta=1e-5,
          fixed_seed=True,
          planned_steps=steps,
      ),
  )


def train(config: Run, folder, loaded: data.Splits, **options):
  """Train a config in a folder; return its spec and result."""
  spec = config.build(splits=loaded)
  return spec, training.train(spec, folder, **options)

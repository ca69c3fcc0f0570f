"""Sample-level training of a convolutional network, from its config."""

import jax
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp import private
from episodic_dp.config import build
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import glyphs_sample_level

SMALL = "participants=30,rate=0.1,size=16,width=2,shot=1,query=1,steps=2"


def _config(text=SMALL):
  config = glyphs_sample_level.get_config(text)
  config.private_seed = 3
  config.data.options.validation_participants = 2
  config.data.options.test_participants = 2
  config.evaluation.validation_tasks = 2
  return config


@pytest.fixture(scope="module")
def splits():
  return build.load_data(RunConfig.parse(_config()), data_dir=None)


def _step(config, splits):
  spec = build.build(RunConfig.parse(config), splits=splits).spec
  step = private.make_meta_step(
    spec.learner,
    spec.optimizer,
    spec.train,
    spec.release,
    compute=spec.compute,
  )
  key = jax.random.key(0)
  return step, private.init(
    key, spec.learner, spec.optimizer, spec.release.mechanism
  )


@pytest.mark.slow
def test_a_network_with_group_norm_is_trained(splits):
  step, state = _step(_config(), splits)
  before = [np.array(leaf) for leaf in jax.tree.leaves(state.params)]
  for _ in range(2):
    state, metrics = step(state)
  assert np.isfinite(metrics["update_norm"]) and metrics["step"] == 2
  for old, new in zip(before, jax.tree.leaves(state.params)):
    assert np.isfinite(new).all() and not np.array_equal(old, new)


@pytest.mark.slow
def test_batch_normalisation_is_refused_by_its_remedy(splits):
  config = _config()
  config.model.norm = "batch"
  with pytest.raises(plan.UnsoundPlanError, match="norm='group'"):
    _step(config, splits)


def test_a_drawing_has_the_same_guarantee_either_way():
  """At the sizes of the config; that of task clipping is the smaller one."""
  epsilons = []
  for text in ("", "sample_level=0"):
    config = glyphs_sample_level.get_config(text)
    found = accounting.guarantees(
        RunConfig.parse(config).release, steps=config.steps, delta=config.delta
    )
    assert list(found) == ["participant", "glyph", "drawing"]
    epsilons.append(found["drawing"].epsilon)
  assert 0.98 * epsilons[0] < epsilons[1] <= epsilons[0]

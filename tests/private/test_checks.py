"""Unsound or contradictory settings are refused before anything compiles."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private

SGD = optax.sgd(1.0)


def mechanism(run, **changes):
  return run._replace(mechanism=dataclasses.replace(run.mechanism, **changes))


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"order": "first"}, "order is 'first' and learner.order is 'second'"),
        ({"inner_steps": 4}, "inner_steps is 4 and learner.inner_steps is 2"),
    ],
)
def test_a_learner_that_the_mechanism_does_not_describe(
    make_run, changes, text
):
  with pytest.raises(plan.PlanError, match=text):
    mechanism(make_run(), **changes).step(SGD)


@pytest.mark.parametrize(
    "spoil,text",
    [
        (lambda i: i.astype(np.int64), "int64"),
        (lambda i: i[..., 0], r"\(72, 4, 4\)"),
        (lambda i: i[:30], "row 71 of 30 images"),
    ],
)
def test_wrong_images_are_named(make_run, spoil, text):
  run = make_run()
  run.dataset.images = spoil(run.dataset.images)
  with pytest.raises(plan.PlanError, match=text):
    run.step(SGD)


def _of_many(run, leaves, rows):
  """The data of a run, with so many participants, their images shared."""
  run.dataset.hierarchy = plan.Hierarchy.regular(
      (leaves // 6, 3, 2), levels=run.dataset.hierarchy.levels, copies=True
  )
  run.dataset.rows = rows
  run.dataset.name = "many"
  return run


def test_one_wrong_row_is_found_among_many(make_run):
  """Of 131 070 leaves a probe of 65 536 leaves out every other one."""
  leaves = 131_070
  seen = np.linspace(0, leaves - 1, 65_536).astype(np.int32)
  missed = int(np.setdiff1d(np.arange(leaves), seen)[1000])
  wrong = lambda leaf: jnp.where(leaf == missed, -1, leaf % 7)  # noqa: E731
  run = _of_many(make_run(), leaves, wrong)
  with pytest.raises(plan.PlanError, match="asks for row -1 of"):
    run.step(SGD)


@pytest.mark.parametrize(
    "rows", [lambda leaf: leaf // 2, lambda leaf: leaf % 71]
)
def test_records_that_recur_must_be_called_copies(make_run, rows):
  run = make_run()
  run.dataset.rows = rows
  assert callable(run.step(SGD))  # The hierarchy says that there are copies.
  run.dataset.hierarchy = dataclasses.replace(
      run.dataset.hierarchy, copies=False
  )
  with pytest.raises(plan.UnsoundPlanError) as e:
    run.step(SGD)
  assert "several of them are one row, such as 0 of 72" in str(e.value)
  run.dataset.rows = lambda leaf: leaf
  assert callable(run.step(SGD))


def test_a_model_of_another_way_or_image_is_named(make_run):
  run = make_run()

  def with_model(model):
    return run._replace(learner=learners.MAML(model))

  wide = models.Model(
      lambda key: jax.random.normal(key, (16, 7)),
      lambda params, images: images.reshape(images.shape[0], -1) @ params,
  )
  with pytest.raises(plan.PlanError, match=r"\(3, 7\).*way=3"):
    with_model(wide).step(SGD)
  large = models.conv4(3, 2, input_shape=(16, 16, 1))
  with pytest.raises(plan.PlanError, match=r"\(16, 16, 1\).*\(4, 4, 1\)"):
    with_model(large).step(SGD)


@pytest.mark.parametrize(
    "key", [0, jnp.zeros(2, jnp.uint32), np.zeros(2, np.uint32)]
)
def test_keys_must_be_typed(make_run, key):
  run = make_run()
  with pytest.raises(ValueError, match="typed key"):
    private.init(key, run.learner, SGD, run.mechanism)

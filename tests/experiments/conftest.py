"""A small config to account for."""

import ml_collections
import pytest


@pytest.fixture(scope="session")
def make_config():
  """Fields that differ -> 4000 tasks of classes of images, and a plan."""

  def make(**fields):
    c = ml_collections.ConfigDict(
        dict(
            hierarchy=dict(
                sizes=(4000, 8, 5), levels=("task", "class", "image")
            ),
            plan=dict(stages=("Poisson(0.05)", "FixedSize(5)", "FixedSize(3)")),
            episode=dict(way=5, shot=1, query=2),
            mechanism=dict(clip_unit="task", noise_multiplier=1.0),
            steps=60,
            delta=1e-5,
        )
    )
    c.update(fields)
    return c

  return make

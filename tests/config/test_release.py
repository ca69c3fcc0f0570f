"""From configs to releases: strict reading, one-sentence errors."""

import pytest

from episodic_dp import plan
from episodic_dp.config import defaults
from episodic_dp.config import release as release_lib


def config(**sections):
  fields = dict(
      hierarchy=dict(sizes=(100, 8, 5), levels=("task", "class", "image")),
      plan=dict(stages=("Poisson(0.05)", "FixedSize(5)", "FixedSize(3)")),
      episode=dict(way=5, shot=1, query=2, form="unit"),
      mechanism=dict(clip_unit="task", noise_multiplier=1.0, clip_norm=0.5),
  )
  fields.update(sections)
  return {k: v for k, v in fields.items() if v is not None}


def test_everything_is_read():
  release = release_lib.plan_from_config(config())
  h, p, m = release.hierarchy, release.plan, release.mechanism
  assert h.sizes == (100, 8, 5) and h.levels == ("task", "class", "image")
  assert p.stages == (
      plan.Poisson(0.05), plan.FixedSize(5), plan.FixedSize(3)
  )
  assert p.episode == plan.Episode(way=5, shot=1, query=2)
  assert m == plan.Mechanism(
      clip_unit="task", noise_multiplier=1.0, clip_norm=0.5
  )


def test_clip_norms_that_adapt_are_read_from_a_training_config():
  mechanism = defaults.mechanism(True, clip_unit="task", noise_multiplier=1.0)
  found = release_lib.mechanism_of(config(mechanism=mechanism.to_dict()))
  assert found == plan.Mechanism(clip_unit="task", noise_multiplier=1.0)
  mechanism.lock()
  given = dict(
      clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
      count_noise=4.0,
  )
  mechanism.update(given)
  found = release_lib.mechanism_of(config(mechanism=mechanism.to_dict()))
  assert {name: getattr(found, name) for name in given} == given
  off = defaults.mechanism(
      False, clip_unit="task", noise_multiplier=1.0, **given
  )
  found = release_lib.mechanism_of(config(mechanism=off.to_dict()))
  assert found.clipping == "fixed" and not found.guaranteed


def test_other_hierarchies():
  nested = release_lib.hierarchy_of(
      config(hierarchy=dict(nested=((4, 2, 3), (4, 5)), levels=tuple("abc")))
  )
  assert nested.child_counts(2).tolist() == [4, 2, 3, 4, 5]
  copies = release_lib.hierarchy_of(
      config(hierarchy=dict(sizes=(9, 2), levels=tuple("ab"), copies=True))
  )
  assert copies.copies
  options = dict(participants=1000, way=5, per_class=2)
  synthetic = release_lib.hierarchy_of(
      config(hierarchy=None, data=dict(name="omniglot", options=options))
  )
  assert synthetic.sizes == (1000, 5, 2) and synthetic.copies
  assert synthetic.most_copies is None
  assert synthetic.levels == ("participant", "class", "image")


def test_counts_of_copies():
  counts = {"class": 30, "image": 7}
  options = dict(participants=1000, way=5, per_class=2)
  data = dict(name="omniglot", options=options, most_copies=counts)
  h = release_lib.hierarchy_of(config(hierarchy=None, data=data))
  assert h.most_copies == (1, 30, 7)
  data["most_copies"] = {"class": None, "image": 7}
  h = release_lib.hierarchy_of(config(hierarchy=None, data=data))
  assert h.most_copies == (1, 0, 7)
  data["most_copies"] = {"class": None, "image": None}
  h = release_lib.hierarchy_of(config(hierarchy=None, data=data))
  assert h.most_copies is None
  h = release_lib.hierarchy_of(
      config(
          hierarchy=dict(
              sizes=(9, 2), levels=tuple("ab"), copies=True,
              most_copies={"b": 4},
          )
      )
  )
  assert h.most_copies == (1, 4)


def test_noisy_inner_steps_are_read():
  inner = dict(
      order="first", inner_steps=3, inner_clip_norm=0.5,
      inner_noise_multiplier=4.0,
  )
  m = release_lib.mechanism_of(
      config(mechanism=dict(clip_unit="image", noise_multiplier=1.0, **inner))
  )
  assert m == plan.Mechanism(
      clip_unit="image", noise_multiplier=1.0, **inner
  )


def test_plans_without_an_episode():
  p = release_lib.plan_from_config(config(episode=None)).plan
  assert p.episode is None


@pytest.mark.parametrize(
    "sections,match",
    [
        (dict(plan=None), "config.plan is missing.*stages"),
        (dict(plan=dict(stages="All()")), "config.plan.stages is 'All\\(\\)'"),
        (dict(mechanism=None), "config.mechanism is missing"),
        (
            dict(mechanism=dict(clip_unit="task")),
            "config.mechanism.noise_multiplier is missing",
        ),
        (
            dict(mechanism=dict(clip_unit="a", noise_multiplier=1.0, sigma=2)),
            "config.mechanism.sigma is not read",
        ),
        (dict(episode=dict(way=5, shot=1)), "config.episode.query is missing"),
        (dict(hierarchy=None), "nothing of its hierarchy.*levels"),
        (dict(hierarchy=dict(levels=("a",))), "either sizes"),
        (dict(hierarchy=dict(levels="ab", sizes=(1, 2))), "tuple of names"),
        (
            dict(
                hierarchy=dict(
                    levels=("a", "b"), nested=(1, 2), most_copies={"b": 1}
                )
            ),
            "most_copies .* only for a hierarchy with copies=True",
        ),
        (
            dict(
                hierarchy=dict(
                    levels=("a", "b"), sizes=(1, 2), copies=True, most_copies=3
                )
            ),
            "most_copies is 3: give a count by level",
        ),
        (
            dict(hierarchy=dict(sizes=(100, 4, 5), levels=tuple("abc"))),
            "every a has 4 of level 'b'",
        ),
    ],
)
def test_errors_are_sentences(sections, match):
  with pytest.raises(plan.PlanError, match=match) as e:
    release_lib.plan_from_config(config(**sections))
  assert "\n" not in str(e.value)

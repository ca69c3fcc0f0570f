"""Curves around a config: they pass through it, and mean what they say."""

import json

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.analysis import costs
from episodic_dp.analysis import sweep_plots
from episodic_dp.analysis import sweeps

DISJOINT = dict(
    hierarchy=dict(sizes=(500, 20), levels=("class", "image")),
    plan=dict(stages=("FixedSize(20)", "FixedSize(4)")),
    episode=dict(way=5, shot=2, query=2, form="disjoint"),
    mechanism=dict(clip_unit="episode", noise_multiplier=2.0),
)


@pytest.fixture(scope="module")
def swept(make_run):
  c = make_run()
  result = costs.account(c)
  return c, result, {
      name: sweeps.sweep(name, c, result) for name in sweeps.SWEEPS
  }


def lines(data, panel=0):
  return {line["label"]: line for line in data["panels"][panel]["lines"]}


@pytest.mark.parametrize("name", ["steps", "noise_multiplier", "tasks",
                                  "stages"])
def test_every_level_passes_through_its_own_point(swept, name):
  _, result, found = swept
  assert list(lines(found[name])) == ["task", "class", "image"]
  for level, line in lines(found[name]).items():
    x, y = line["own"]
    own = result["guarantees"][level]["epsilon"]
    assert y == pytest.approx(own, rel=2e-3)
    assert line["y"][line["x"].index(x)] == y
    assert line["x"] == sorted(set(line["x"])) and len(line["x"]) > 3


@pytest.mark.parametrize(
    "name,sign", [("steps", 1), ("noise_multiplier", -1), ("tasks", 1)]
)
def test_epsilon_rises_or_falls_as_it_should(swept, name, sign):
  for line in lines(swept[2][name]).values():
    values = np.asarray([y for y in line["y"] if isinstance(y, float)])
    assert (sign * np.diff(values) > -2e-3 * values[1:]).all()
    assert values.max() > 2 * values.min()


def test_points_are_what_the_library_says(swept):
  c, _, found = swept
  release = c.release
  noise = lines(found["noise_multiplier"])["class"]
  stages = lines(found["stages"])["image"]
  noisier = release.replace(mechanism=plan.Mechanism(
      clip_unit="task", noise_multiplier=noise["x"][2]
  ))
  one = release.replace(plan=plan.SamplingPlan(
      (release.plan.stages[0], plan.All(), plan.All())
  ))
  assert noise["y"][2] == accounting.guarantee(
      noisier, steps=60, delta=1e-5, level="class"
  ).epsilon
  assert stages["y"][1] == accounting.guarantee(
      one, steps=60, delta=1e-5, level="image"
  ).epsilon
  # Nothing sampled: one Gaussian of noise 1 / 2 per step.
  assert stages["y"][0] == accounting.epsilon(1, 1, 2.0, 60, 1e-5)


def test_tasks_are_counted_as_training_counts_them(swept):
  assert lines(swept[2]["tasks"])["task"]["own"][0] == 200.0


def test_comparison_orders_printed_corrected_and_plain(swept):
  data = swept[2]["comparison"]
  titles = [panel["title"] for panel in data["panels"]]
  assert [t.split(",")[0] for t in titles] == (
      ["class: 2 stages"] * 2 + ["image: 3 stages"] * 2
  )
  for panel in range(4):
    own, fixed, printed, plain = (
        np.asarray(line["y"]) for line in lines(data, panel).values()
    )
    assert (printed < own).all() and (own < fixed).all()
    assert (fixed < plain).all()
  assert "as printed (not valid)" in lines(data)


def test_disjoint_tasks_grow_by_whole_tasks(make_run):
  c = make_run(**DISJOINT)
  data = sweeps.sweep("tasks", c, costs.account(c))
  for line in lines(data).values():
    assert all(x == int(x) for x in line["x"]) and max(line["x"]) > 4
    assert line["own"][0] == 4 and None not in line["y"]


@pytest.mark.slow
def test_shorter_passes_draw_more_tasks_a_step(make_run):
  c = make_run(
      plan=dict(
          stages=("RandomAllocation(20)", "FixedSize(5)", "FixedSize(3)")
      ),
      mechanism=dict(clip_unit="task", noise_multiplier=8.0),
  )
  line = lines(sweeps.sweep("tasks", c, costs.account(c)))["task"]
  assert line["own"][0] == 200.0
  assert line["x"][-1] > 1000 and line["y"][-1] > line["own"][1]


def test_records_that_recur_have_no_single_distance(make_run):
  c = make_run(
      hierarchy=dict(
          sizes=(4000, 5, 5), levels=("task", "class", "image"), copies=True,
          most_copies=dict(image=4),
      ),
      mechanism=dict(clip_unit="task", noise_multiplier=2.0),
  )
  result = costs.account(c)
  assert set(result["guarantees"]) == {"task", "image"}
  line = lines(sweeps.sweep("stages", c, result))["image"]
  assert line["y"][0] is None and line["own"] == [3, line["y"][3]]


@pytest.mark.parametrize(
    "name,fields,part",
    [
        ("magic", {}, "unknown sweep 'magic'"),
        ("stages", DISJOINT, "form='unit'"),
        ("tasks", dict(
            plan=dict(stages=("All()", "FixedSize(5)", "FixedSize(3)")),
            mechanism=dict(clip_unit="task", noise_multiplier=50.0),
        ), "stage All()"),
        ("comparison", dict(hierarchy=dict(
            sizes=(4000, 8, 5), levels=("task", "class", "image"), copies=True
        )), "below the first"),
        ("steps", dict(mechanism=dict(clip_unit="task", noise_multiplier=0.0)),
         "no level of this config"),
        ("comparison", dict(plan=dict(stages=(
            "RandomAllocation(20)", "FixedSize(5)", "FixedSize(3)"
        ))), "no RandomAllocation"),
    ],
)
def test_nothing_to_sweep_is_one_sentence(make_run, name, fields, part):
  c = make_run(**fields)
  with pytest.raises(plan.PlanError) as error:
    sweeps.sweep(name, c, costs.account(c))
  assert part in str(error.value) and "\n" not in str(error.value)


def test_files_hold_what_was_drawn(swept, tmp_path):
  for name in ("stages", "comparison"):
    data = swept[2][name]
    path = sweep_plots.write(data, tmp_path / "out")
    assert path.name == f"sweep_{name}.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert json.loads(path.with_suffix(".json").read_text()) == json.loads(
        json.dumps(data)
    )
  assert len(list((tmp_path / "out").iterdir())) == 4


def test_infinite_and_missing_values_leave_gaps(swept):
  data = json.loads(json.dumps(swept[2]["steps"]))
  line = data["panels"][0]["lines"][0]
  line["y"][0], line["y"][1], line["own"] = "inf", None, [60, "inf"]
  figure = sweep_plots.draw(data)
  drawn = figure.axes[0].lines[0].get_xdata()
  assert list(drawn) == line["x"][2:]


def test_a_folder_that_cannot_be_made(swept, tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(ValueError, match="cannot be written"):
    sweep_plots.write(swept[2]["steps"], tmp_path / "file")

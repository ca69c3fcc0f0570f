"""What may change of a config when a run is resumed, and what is said."""

import json
import re

import pytest

from episodic_dp import errors
from episodic_dp.output import files
from episodic_dp.training import same_run
from episodic_dp.training import workdir

CONFIG = {
    "steps": 5,
    "delta": 1e-5,
    "mechanism": {"noise_multiplier": 1.0},
    "compute": {"microbatch_size": 4},
}


def _changed(name, value):
  config = json.loads(json.dumps(CONFIG))
  *groups, last = name.split(".")
  inner = config
  for group in groups:
    inner = inner[group]
  inner[last] = value
  return config


@pytest.mark.parametrize(
    "name, value, clean, allowed",
    [
        ("delta", 1e-6, False, True),
        ("steps", 9, True, True),
        ("steps", 9, False, False),
        ("compute.microbatch_size", 8, True, True),
        ("compute.microbatch_size", 8, False, True),
        ("compute.noise_terms", 4, True, True),
        ("compute.noise_terms", 4, False, False),
        ("mechanism.noise_multiplier", 0.5, True, False),
        ("mechanism.clip_norm", 2.0, True, False),  # A field that is new.
    ],
)
def test_what_may_change_on_resuming(tmp_path, name, value, clean, allowed):
  files.write_json(tmp_path / workdir.CONFIG, CONFIG)
  new = _changed(name, value)
  if allowed:
    relaid = same_run.check_config(tmp_path, new, clean=clean)
    said = ["microbatch_size '4' -> '8'"] if "microbatch" in name else []
    assert relaid == said
  else:
    with pytest.raises(errors.RunError, match=f"config.{name}"):
      same_run.check_config(tmp_path, new, clean=clean)


@pytest.mark.parametrize(
    "before, after, remedy",
    [
        ({"seed": 0}, {"seed": 5}, "with --config.seed=0 or"),
        ({"seed": None}, {"seed": 5}, "without --config.seed or"),
        ({"clip": "inf"}, {"clip": 1.0}, "with --config.clip=inf or"),
        ({"at": ["All()", 5]}, {"at": []}, "with --config.at=\"('All()', 5)\""),
        ({"a": 8, "b": 0}, {"b": 0}, "with the --config that it was started"),
        ({"data": {"name": "a"}}, {"data": {"name": "b"}}, "with the --config"),
    ],
)
def test_the_remedy_of_another_field_can_be_typed(
    tmp_path, before, after, remedy
):
  files.write_json(tmp_path / workdir.CONFIG, before)
  with pytest.raises(errors.RunError) as e:
    same_run.check_config(tmp_path, after, clean=True)
  assert f"the same key: resume {remedy}" in str(e.value)


def test_the_remedy_of_several_fields_is_that_of_all(tmp_path):
  before = CONFIG | {"a": 1, "b": 2, "hierarchy": {"sizes": [3]}}
  files.write_json(tmp_path / workdir.CONFIG, before)
  now = {"a": 2, "b": 3, "hierarchy": {"sizes": [4]}}
  with pytest.raises(errors.RunError) as e:
    same_run.check_config(tmp_path, CONFIG | now, clean=True)
  remedy = "resume with --config.a=1 and with --config.b=2 and with the data"
  assert f"the same key: {remedy}" in str(e.value)
  more = {"c": 3, "d": 4}
  files.write_json(tmp_path / workdir.CONFIG, before | more)
  now |= {"c": 5, "d": 6}
  with pytest.raises(errors.RunError, match="config.a=1 and is .*: resume with"
                     " the --config that it was started with or choose"):
    same_run.check_config(tmp_path, CONFIG | now, clean=True)


@pytest.mark.parametrize("now", [{"sizes": [4]}, {"nested": [1, 2]}])
def test_other_sizes_are_told_as_other_data(tmp_path, now):
  before = CONFIG | {"hierarchy": {"sizes": [3]}}
  files.write_json(tmp_path / workdir.CONFIG, before)
  with pytest.raises(errors.RunError) as e:
    same_run.check_config(tmp_path, CONFIG | {"hierarchy": now}, clean=True)
  said = "data of other sizes.*: resume with the data that it was started with"
  assert re.search(said, str(e.value)) and "config.hier" not in str(e.value)


def test_a_field_that_only_one_of_them_has_may_be_damage(tmp_path):
  path = tmp_path / workdir.CONFIG
  remedy = f"if {path} is damaged, move it away and run the same command again"
  renamed = {"mechbnism" if k == "mechanism" else k: v
             for k, v in CONFIG.items()}  # fmt: skip
  for before, after, said in (
      (CONFIG, CONFIG | {"extra": 1}, "without config.extra and is resumed"),
      (CONFIG | {"extra": 1}, CONFIG, "config.extra=1 and is resumed without"),
      (renamed, CONFIG, "config.mech"),
  ):
    files.write_json(path, before)
    with pytest.raises(errors.RunError) as error:
      same_run.check_config(tmp_path, after, clean=True)
    assert said in str(error.value) and remedy in str(error.value)
    path.unlink()
    assert same_run.check_config(tmp_path, after, clean=True) == []


def test_another_run_is_told_by_its_data_and_before_they_are_read(tmp_path):
  began = CONFIG | {"data": {"name": "glyphs"}, "model": {"name": "m:f"}}
  recorded = {"name": "m:f", "source_digest": "a", "shapes_digest": "b"}
  files.write_json(tmp_path / workdir.CONFIG, began | {"model": recorded})
  same_run.check_before_data(tmp_path, began)
  same_run.check_before_data(tmp_path, began | {"steps": 9})
  same_run.check_before_data(tmp_path / "new", began)
  other = began | {"data": {"name": "omniglot"}, "checkpoint_every": 3}
  with pytest.raises(errors.RunError, match="config.data.name='glyphs'"):
    same_run.check_before_data(tmp_path, other)


def test_what_identifies_a_network_on_resuming(tmp_path, caplog):
  files.write_json(tmp_path / workdir.CONFIG, CONFIG | {"model": {
      "start": "/a.npz", "start_digest": "ab", "source_digest": "cd",
      "shapes_digest": "ef",
  }})  # fmt: skip

  def resumed(**changes):
    model = {
        "start": "/b.npz", "start_digest": "ab", "source_digest": "cd",
        "shapes_digest": "ef", "trained": None,  # A field that is new.
    }  # fmt: skip
    new = CONFIG | {"model": model | changes}
    assert same_run.check_config(tmp_path, new, clean=False) == []

  resumed()
  assert not caplog.text
  resumed(source_digest="other")
  assert "has changed since the run" in caplog.text
  for changes, remedy in (
      ({"start_digest": "x"}, "give --config.model.start the file of weights"),
      ({"shapes_digest": "x"}, "give the network of config.model.name"),
      ({"trained": "head"}, "resume without --config.model.trained"),
  ):
    with pytest.raises(errors.RunError, match=f"{remedy}.*another --workdir"):
      resumed(**changes)


@pytest.mark.parametrize("content", ["", "{", "[1]", '"text"'])
def test_damaged_config_is_one_sentence(tmp_path, content):
  (tmp_path / workdir.CONFIG).write_text(content)
  with pytest.raises(errors.RunError, match="restore the file"):
    same_run.check_config(tmp_path, CONFIG, clean=True)


@pytest.mark.parametrize(
    "new,expected",
    [
        ({"a": [1, {"b": 2.0}]}, None),
        ({"a": [1, {"b": 2}]}, None),
        ({"a": [1, {"b": 3}]}, ("a.1.b", "2.0", "3")),
        ({"a": [1]}, ("a.1.b", "2.0", "'absent'")),
        ({"a": [1, {"b": 2.0}], "c": "x"}, ("c", "'absent'", "'x'")),
    ],
)
def test_the_first_difference_is_named(new, expected):
  found = same_run.first_difference({"a": [1, {"b": 2.0}]}, new)
  assert found == expected

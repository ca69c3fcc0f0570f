"""The work directory: lock, room, configuration."""

import collections
import errno
import json
import os

import pytest

from episodic_dp.output import files
from episodic_dp.training import errors
from episodic_dp.training import workdir

CONFIG = {
    "steps": 5,
    "delta": 1e-5,
    "mechanism": {"noise_multiplier": 1.0},
    "compute": {"microbatch_size": 4},
}


def test_second_process_is_refused_and_the_lock_ends(tmp_path):
  with workdir.opened(tmp_path):
    with pytest.raises(errors.RunError, match="another process is training"):
      with workdir.opened(tmp_path):
        pass
  with workdir.opened(tmp_path):
    pass


@pytest.mark.parametrize(
    "number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS]
)
def test_a_mount_without_locks_is_not_another_process(
    tmp_path, monkeypatch, caplog, number
):
  _lock_fails(monkeypatch, number)
  with workdir.opened(tmp_path):
    pass
  (told,) = [r.getMessage() for r in caplog.records]
  assert f"the file system of {tmp_path} knows no locks" in told


def test_a_lock_that_fails_otherwise_is_one_sentence(tmp_path, monkeypatch):
  _lock_fails(monkeypatch, errno.EIO)
  with pytest.raises(errors.RunError, match="cannot be locked .*mend this one"):
    with workdir.opened(tmp_path):
      pass


def _lock_fails(monkeypatch, number):
  def flock(*unused):
    raise OSError(number, os.strerror(number))

  monkeypatch.setattr(workdir.fcntl, "flock", flock)


def test_a_run_may_be_insisted_on_or_refused(tmp_path):
  folder = tmp_path / "run"
  with pytest.raises(errors.RunError, match="no run was ever begun in .*/run"):
    with workdir.opened(folder, resume="must"):
      pass
  assert not folder.exists()
  with workdir.opened(folder, resume="never"):
    pass
  with workdir.opened(folder, resume="must"):
    files.write_json(folder / workdir.CONFIG, CONFIG)
  with pytest.raises(errors.RunError, match="holds a run: choose another"):
    with workdir.opened(folder, resume="never"):
      pass


@pytest.mark.parametrize("there", [None, [], ["notes.txt"]])
def test_what_is_refused_leaves_the_folder_as_it_was(tmp_path, there):
  folder = tmp_path / "runs" / "new"
  if there is not None:
    folder.mkdir(parents=True)
    for name in there:
      (folder / name).write_text("mine")
  with pytest.raises(FileNotFoundError, match="no data"):
    with workdir.opened(folder):
      (folder / "private").mkdir()
      (folder / "private" / "key").write_text("secret")
      raise FileNotFoundError("no data")
  if there is None:
    assert not (tmp_path / "runs").exists()
  else:
    assert [path.name for path in folder.iterdir()] == there


def test_what_fails_later_stays(tmp_path):
  with pytest.raises(ValueError):
    with workdir.opened(tmp_path / "run"):
      files.write_json(tmp_path / "run" / workdir.CONFIG, CONFIG)
      raise ValueError("later")
  assert (tmp_path / "run" / ".lock").exists()


def test_a_lock_that_was_removed_meanwhile_is_not_taken(tmp_path, monkeypatch):
  flock = workdir.fcntl.flock

  def after_it_was_removed(*arguments):
    (tmp_path / ".lock").unlink()
    flock(*arguments)

  monkeypatch.setattr(workdir.fcntl, "flock", after_it_was_removed)
  with pytest.raises(errors.RunError, match="another process is training"):
    with workdir.opened(tmp_path):
      pass


def test_a_file_in_the_way_is_one_sentence(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(errors.RunError, match="choose another --workdir"):
    with workdir.opened(tmp_path / "file" / "run"):
      pass


def test_full_disk_is_one_sentence(tmp_path, monkeypatch):
  usage = collections.namedtuple("usage", "total used free")
  monkeypatch.setattr(
      workdir.shutil, "disk_usage", lambda path: usage(2**30, 2**30, 2**20)
  )
  with pytest.raises(errors.RunError, match="has 1 MiB left.*make room"):
    with workdir.opened(tmp_path):
      pass


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
    relaid = workdir.check_config(tmp_path, new, clean=clean)
    said = ["microbatch_size '4' -> '8'"] if "microbatch" in name else []
    assert relaid == said
  else:
    with pytest.raises(errors.RunError, match=f"config.{name}"):
      workdir.check_config(tmp_path, new, clean=clean)


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
    workdir.check_config(tmp_path, after, clean=True)
  assert f"the same key: resume {remedy}" in str(e.value)


def test_the_remedy_of_several_fields_is_that_of_all(tmp_path):
  before = CONFIG | {"a": 1, "b": 2, "hierarchy": {"sizes": [3]}}
  files.write_json(tmp_path / workdir.CONFIG, before)
  now = {"a": 2, "b": 3, "hierarchy": {"sizes": [4]}}
  with pytest.raises(errors.RunError) as e:
    workdir.check_config(tmp_path, CONFIG | now, clean=True)
  remedy = "resume with --config.a=1 and with --config.b=2 or choose another"
  assert f"the same key: {remedy}" in str(e.value)
  more = {"c": 3, "d": 4}
  files.write_json(tmp_path / workdir.CONFIG, before | more)
  now |= {"c": 5, "d": 6}
  with pytest.raises(errors.RunError, match="config.a=1 and is .*: resume with"
                     " the --config that it was started with or choose"):
    workdir.check_config(tmp_path, CONFIG | now, clean=True)


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
      workdir.check_config(tmp_path, after, clean=True)
    assert said in str(error.value) and remedy in str(error.value)
    path.unlink()
    assert workdir.check_config(tmp_path, after, clean=True) == []


def test_another_run_is_told_by_its_data_and_before_they_are_read(tmp_path):
  began = CONFIG | {"data": {"name": "glyphs"}, "model": {"name": "m:f"}}
  recorded = {"name": "m:f", "source_digest": "a", "shapes_digest": "b"}
  files.write_json(tmp_path / workdir.CONFIG, began | {"model": recorded})
  workdir.check_before_data(tmp_path, began)
  workdir.check_before_data(tmp_path, began | {"steps": 9})
  workdir.check_before_data(tmp_path / "new", began)
  other = began | {"data": {"name": "omniglot"}, "checkpoint_every": 3}
  with pytest.raises(errors.RunError, match="config.data.name='glyphs'"):
    workdir.check_before_data(tmp_path, other)


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
    assert workdir.check_config(tmp_path, new, clean=False) == []

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


def test_a_run_beside_or_below_is_named_where_there_is_none(tmp_path):
  run = tmp_path / "runs" / "a run"
  run.mkdir(parents=True)
  (tmp_path / "runs" / "README").touch()
  for path, said in (
      (run / workdir.CONFIG, "does not exist: give the --workdir of a run"),
      (tmp_path / "runs" / "README", "README is a file: give the --workdir"),
  ):
    with pytest.raises(errors.RunError, match=said):
      workdir.read_config(path)
  files.write_json(run / workdir.CONFIG, CONFIG)
  for path, said in (
      (run / workdir.CONFIG, "config.json is a file"),
      (tmp_path / "runs", "runs/config.json does not exist"),
  ):
    remedy = f"{said}: give the folder of a run, such as --workdir='{run}'"
    with pytest.raises(errors.RunError, match=remedy):
      workdir.read_config(path)
  files.write_json(run / workdir.CONFIG, {"visit": {"local_steps": 25}})
  with pytest.raises(errors.RunError, match="a run of episodic-dp pvi"):
    workdir.read_config(run)


@pytest.mark.parametrize("content", ["", "{", "[1]", '"text"'])
def test_damaged_config_is_one_sentence(tmp_path, content):
  (tmp_path / workdir.CONFIG).write_text(content)
  with pytest.raises(errors.RunError, match="restore the file"):
    workdir.check_config(tmp_path, CONFIG, clean=True)


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
  found = workdir.first_difference({"a": [1, {"b": 2.0}]}, new)
  assert found == expected

"""The command behind the `--`, and the runs that a sweep makes of it."""

import json
import os
import pathlib
import re
import subprocess
import sys

from absl import flags
import pytest

from episodic_dp.cli import commands
from episodic_dp.training import workdir as workdir_lib
from launch import command as command_lib
from launch import launch
from launch import sweep

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TRAIN = ("train", "--config=glyphs", "--workdir=/runs/a")
_BUCKET = (*_TRAIN[:2], "--workdir=gs://bucket/a")
_TARGET = {
    "local": ("--target=local",),
    "slurm": ("--target=slurm",),
    "tpu": ("--target=tpu", "--tpu=pod", "--zone=z", "--image=host/name:tag"),
    "kubernetes": ("--target=kubernetes", "--image=name"),
}


def _refused(capsys, *arguments):
  """The sentence that the launcher ends with."""
  with pytest.raises(SystemExit) as ended:
    launch.main(["launch.py", *arguments])
  assert ended.value.code == 1
  out, err = capsys.readouterr()
  assert not out and err.startswith("error: ") and err.count("\n") == 1, err
  return err


def test_flags_are_those_of_train():
  own = commands.define_flags(commands.module("train"))
  for name in own:
    delattr(flags.FLAGS, name)
  ours = set(command_lib.define_flags(()))
  assert ours | {*command_lib.OF_PROCESSES, "keys"} == set(own)


@pytest.mark.parametrize(
    "command, words",
    [
        ((), "write it behind a lone --, such as -- train --config=glyphs"),
        (("evaluate", "--workdir=a"), "'evaluate' is not launched"),
        ((*_TRAIN, "--coordinator=a:1"), "--coordinator=a:1 is said by the"),
        ((*_TRAIN, "--process_id", "1"), "--process_id is said by the"),
        (("train", "--config=glyphs"), "the flag --workdir is missing"),
        (("train", "--workdir=a"), "the flag --config is missing"),
        (("train", "--config=nothing", "--workdir=a"), "nor a preset"),
        ((*_TRAIN, "--stepps=3"), "stepps"),
        ((*_TRAIN, "--config.stepps=3"), "did you mean 'steps'?"),
        ((*_TRAIN, "--config.mechanism.noise_multiplier=-1"), "-1"),
        ((*_TRAIN, "--config.steps=0"), "such as --config.steps=1"),
        ((*_TRAIN, "--config.delta=2"), "such as --config.delta=1e-05"),
        ((*_TRAIN, "--config.model.width=0"), "--config.model.width=1"),
        ((*_TRAIN, "--time_limit=abc"), "write it as 90s, 55m"),
        ((*_TRAIN, "--key_file=/no/key"), "--key_file=/no/key is for a run on"),
        ((*_TRAIN, "--keys=2"), "--keys=2 is of the launcher: write it before"),
        ((*_TRAIN, "--dry_run"), "--dry_run is of the launcher"),
        ((*_TRAIN, "--help"), "launch.py --help lists the launcher's flags"),
        ((*_TRAIN, "more"), "argument 'more' is not a flag of train"),
    ],
)
@pytest.mark.parametrize("target", ["slurm", "kubernetes"])
def test_a_wrong_command_is_refused_before_it_is_launched(
    target, command, words, capsys
):
  assert words in _refused(capsys, *_TARGET[target], "--", *command)


@pytest.mark.parametrize(
    "own, command, words",
    [
        ((), _TRAIN, "the flag --target is missing"),
        (("--target=moon",), _TRAIN, "moon"),
        ((*_TARGET["local"], "--nodes=1"), _TRAIN,
         "--nodes says nothing to --target=local: leave it out"),
        ((*_TARGET["slurm"], "--device=gpu"), _TRAIN,
         "it is read by --target=local|kubernetes"),
        ((*_TARGET["local"], "more"), _TRAIN, "behind a lone --"),
        ((*_TARGET["local"], "--processes=two"), _TRAIN,
         "must be a whole number of at least 1, such as --processes=1"),
        ((*_TARGET["local"], "--grace=0"), _TRAIN,
         "must be a number of at least 0.1 and at most 86400, such as"),
        ((*_TARGET["slurm"], "--grace=inf"), _TRAIN, "at most 86400"),
        ((*_TARGET["local"], "--grace=nan"), _TRAIN, "such as --grace=30"),
        ((*_TARGET["kubernetes"], "--gpus=8"), _TRAIN, "add --device=gpu"),
        ((*_TARGET["kubernetes"], "--tpu_topology=4x4"), _TRAIN,
         "is of TPUs: add --device=tpu"),
        ((*_TARGET["local"], "--keys=2"), (*_TRAIN, "--config.seed=3"),
         "--config.seed=3 says nothing to a sweep"),
        ((*_TARGET["local"], *_TRAIN), (), "the lone -- before 'train'"),
        ((*_TARGET["local"], "--config=glyphs"), (),
         "--config=glyphs is of train: write it behind a lone --"),
        ((*_TARGET["local"], "--config.steps=3"), _TRAIN, "is of train"),
        ((*_TARGET["local"], "--workdir", "a"), _TRAIN, "is of train"),
        ((*_TARGET["local"], "--python=/no/python"), _TRAIN, "/no/python"),
        (_TARGET["local"], (*_TRAIN[:2], "--workdir=/dev/null/a"),
         "--workdir=/dev/null/a cannot be made: /dev/null"),
        (_TARGET["slurm"], (*_TRAIN[:2], "--workdir=/dev/null"),
         "--workdir=/dev/null is not a folder"),
        ((*_TARGET["slurm"], "--processes=3", "--nodes=2"), _TRAIN,
         "--processes=3 cannot be shared out over --nodes=2: take"),
        ((*_TARGET["slurm"], "--processes=2", "--gpus_per_node=4"), _TRAIN,
         "take --processes=4"),
        (_TARGET["tpu"][:1], _TRAIN, "--target=tpu needs --tpu"),
        (_TARGET["tpu"], _TRAIN, "--workdir=gs://BUCKET/glyphs"),
        (_TARGET["tpu"], (*_BUCKET, "--key_file=/a/key"),
         "--key_file=/a/key is lost with the container"),
        (_TARGET["tpu"], ("train", "--config=omniglot", _BUCKET[-1],
                          "--data_dir=/a"), "--data_dir=/a is not"),
        (_TARGET["kubernetes"], (*_BUCKET, "--key_file=/a/key"),
         "write --key_file=/runs/glyphs with --claim=NAME"),
        ((*_TARGET["slurm"], "--keys=2"), (*_BUCKET, "--key_file=/a/key"),
         "--key_file=/a/key is of one run"),
        ((*_TARGET["tpu"], "--processes=4"), _TRAIN, "leave --processes out"),
        ((*_TARGET["tpu"], "--spot"), _TRAIN, "--spot needs"),
        (_TARGET["kubernetes"][:1], _TRAIN, "needs --image"),
        (_TARGET["kubernetes"], _TRAIN, "add --claim=NAME"),
        (_TARGET["kubernetes"], (*_TRAIN[:2], "--workdir=/home/a"),
         "--workdir=/home/a is not in the pods: write --workdir=/runs/glyphs"),
        ((*_TARGET["kubernetes"], "--claim=c", "--name=A_b"), _TRAIN,
         "--name=A_b is no name for Kubernetes"),
        (_TARGET["kubernetes"], (*_BUCKET, "--resume=never"), "leave it out"),
        ((*_TARGET["kubernetes"], "--device=tpu"), _TRAIN,
         "--tpu_topology=4x4"),
        ((*_TARGET["kubernetes"], "--slices=2"), _TRAIN, "add --device=tpu"),
    ],
)  # fmt: skip
def test_wrong_flags_are_refused(own, command, words, capsys):
  assert words in _refused(capsys, *own, "--", *command)


@pytest.mark.parametrize(
    "time",
    ["90", "90:30", "11:00:00", "2-12", "2-12:30", "2-12:30:00", "UNLIMITED"],
)
def test_a_time_of_sbatch_is_taken_as_it_is(time, capsys):
  assert not launch.main(["launch.py", *_TARGET["slurm"], f"--time={time}",
                          "--dry_run", "--", *_BUCKET])  # fmt: skip
  assert f"#SBATCH --time={time}\n" in capsys.readouterr().out


@pytest.mark.parametrize("time", ["banana", "11h", "1:2:3:4", "-5"])
def test_what_is_no_time_of_sbatch_is_refused(time, capsys):
  own = *_TARGET["slurm"], f"--time={time}"
  sentence = _refused(capsys, *own, "--", *_TRAIN)
  assert f"--time={time} is no time for sbatch" in sentence


@pytest.mark.parametrize(
    "target, program",
    [("slurm", "sbatch"), ("tpu", "gcloud"), ("kubernetes", "kubectl")],
)
def test_a_cluster_that_is_not_there_is_said(
    target, program, monkeypatch, tmp_path, capsys
):
  monkeypatch.setenv("PATH", str(tmp_path))
  sentence = _refused(capsys, *_TARGET[target], "--", *_BUCKET)
  assert f"{program} is not on this machine" in sentence
  assert "--dry_run" in sentence


def test_a_folder_that_is_in_use_is_said_before_anything_starts(
    tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(subprocess, "run", None)
  (tmp_path / "sbatch").touch(mode=0o700)
  monkeypatch.setenv("PATH", str(tmp_path))
  command = (*_TRAIN[:2], f"--workdir={tmp_path}/a")
  with workdir_lib.opened(tmp_path / "a"):
    for target in ("local", "slurm"):
      sentence = _refused(capsys, *_TARGET[target], "--", *command)
      assert "another process is training in" in sentence


@pytest.mark.parametrize("target", ["local", "slurm"])
def test_a_folder_of_other_runs_is_told_by_a_dry_run_too(
    target, tmp_path, capsys
):
  folder = tmp_path / "run"
  command = (*_TRAIN[:2], f"--workdir={folder}")
  parsed = command_lib.parse(command).parsed
  (folder / "checkpoints" / "6").mkdir(parents=True)
  (folder / "config.json").write_text(json.dumps(parsed.as_json()))
  own = (*_TARGET[target], "--dry_run")
  assert not launch.main(["launch.py", *own, "--", *command])
  capsys.readouterr()
  for more, said in (
      ("--config.mechanism.noise_multiplier=2", "noise_multiplier=1.0 and is"),
      ("--config.steps=3", "has done 6 steps already.*--config.steps=6"),
  ):
    assert re.search(said, _refused(capsys, *own, "--", *command, more))
  sentence = _refused(capsys, *own, "--keys=2", "--", *command)
  assert f"{folder} holds a run, and a sweep makes folders" in sentence
  folder.rename(tmp_path / "key=0")
  sentence = _refused(capsys, *own, "--", *command[:2], f"--workdir={tmp_path}")
  assert "holds folders of runs: add --keys=1" in sentence


def test_a_sweep_in_a_folder_is_told_to_a_single_run(tmp_path, capsys):
  run = tmp_path / "noise_multiplier=2,key=0"
  run.mkdir()
  (run / "config.json").touch()
  command = (*_TRAIN[:2], f"--workdir={tmp_path}")
  sentence = _refused(capsys, "--target=local", "--dry_run", "--", *command)
  assert "holds folders of runs: choose another --workdir" in sentence


def test_an_option_of_sbatch_has_dashes(capsys):
  own = (*_TARGET["slurm"], "--sbatch=partition=gpu")
  sentence = _refused(capsys, *own, "--", *_TRAIN)
  assert "write it with its dashes, --sbatch=--partition=gpu" in sentence


def test_a_failed_submission_is_said(tmp_path, monkeypatch, capsys):
  sbatch = tmp_path / "sbatch"
  sbatch.write_text("#!/bin/sh\nexit 3")
  sbatch.chmod(0o700)
  monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
  sentence = _refused(
      capsys, *_TARGET["slurm"], "--", *_TRAIN[:2], f"--workdir={tmp_path}/a"
  )
  assert "sbatch ended with status 3, and nothing was submitted" in sentence


def test_what_was_submitted_is_its_first_line(tmp_path):
  sbatch = tmp_path / "sbatch"
  sbatch.write_text("#!/bin/sh\necho 7")
  sbatch.chmod(0o700)
  done = subprocess.run(
      [sys.executable, "launch/launch.py", *_TARGET["slurm"], "--",
       *_BUCKET],
      cwd=_ROOT,
      env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
      stderr=subprocess.PIPE,
      text=True,
      timeout=100,
  )  # fmt: skip
  (line,) = done.stderr.splitlines()
  assert done.returncode == 0 and "submitted as job 7" in line


@pytest.mark.parametrize("target", ["tpu", "kubernetes"])
def test_a_config_file_of_this_machine_is_not_sent_elsewhere(
    target, tmp_path, capsys
):
  path = tmp_path / "mine.py"
  path.write_text("from episodic_dp.config.presets.glyphs import get_config\n")
  command = ("train", f"--config={path}", "--workdir=gs://bucket/a")
  sentence = _refused(capsys, *_TARGET[target], "--", *command)
  assert f"--config={path} is a file of this machine" in sentence


def test_a_sweep_is_the_product_of_values_and_keys():
  command = command_lib.parse((*_TRAIN, "--config.steps=5"))
  runs = sweep.runs(
      command,
      ["config.mechanism.noise_multiplier=1,2", "config.learner.inner_steps=1"],
      keys=2,
  )
  assert [run.name for run in runs] == [
      f"noise_multiplier={z},inner_steps=1,key={key}"
      for z in (1, 2)
      for key in (0, 1)
  ]
  assert runs[-1].workdir == f"/runs/a/{runs[-1].name}"
  assert runs[-1].arguments == (
      "--config=glyphs", "--config.steps=5",
      "--config.mechanism.noise_multiplier=2",
      "--config.learner.inner_steps=1", "--config.seed=1",
      f"--workdir={runs[-1].workdir}",
  )  # fmt: skip


def test_keys_alone_and_names_that_would_be_alike():
  command = command_lib.parse(("train", "--config", "glyphs", "--workdir", "a"))
  assert [run.workdir for run in sweep.runs(command, [], 2)] == [
      "a/key=0",
      "a/key=1",
  ]
  (run,) = sweep.runs(
      command, ["config.evaluation.seed=2", "config.data.options.seed=1"], None
  )
  assert run.name == "evaluation.seed=2,data.options.seed=1,key=0"
  assert run.arguments[:2] == ("--config", "glyphs")


@pytest.mark.parametrize(
    "sweeps, words",
    [
        (["steps=1,2"], "--sweep=config.mechanism.noise_multiplier=1,2,4"),
        (["config.steps"], "with its values"),
        (["config.steps=1,,2"], "with its values"),
        (["config.steps=1,1"], "has a value twice"),
        (["config.steps=1", "config.steps=2"], "is given twice"),
        (["config.seed=1,2,3"], "write --keys=3"),
        (["config.data.name=a/b"], "a/b cannot be part of a folder's name"),
        (["config.stepps=1,2"], "did you mean 'steps'?"),
        (["config.mechanism.noise_multiplier=1,-2"], "-2"),
    ],
)
def test_a_wrong_sweep_is_refused(sweeps, words, capsys):
  flags_ = [f"--sweep={text}" for text in sweeps]
  assert words in _refused(capsys, *_TARGET["slurm"], *flags_, "--", *_TRAIN)


def test_help_has_an_example_for_each_target(capsys):
  assert launch.main(["launch.py", "--help"]) == 0
  out = capsys.readouterr().out
  for name in _TARGET:
    assert f"launch.py --target={name} -" in out
  assert "--[no]dry_run" in out and "--restarts=N" in out
  assert " May be repeated.\n" in out and "repeat this option" not in out
  assert max(map(len, out.splitlines())) <= 80

"""Properties of what launchers would run: scripts, arrays and manifests."""

import contextlib
import io
import os
import re
import shlex
import subprocess

import pytest
import yaml

from episodic_dp import errors
from launch import job as job_lib
from launch import launch

TRAIN = ("train", "--config=glyphs", "--config.x=('a', 'b')")
FIELDS = ("config.mechanism.noise_multiplier=1,2.5", "config.seed=0,1")
SWEEP = tuple(f"--sweep={field}" for field in FIELDS)
POD = ("--target=tpu", "--tpu=pod", "--zone=us-east5-a", "--image=host/a:tpu")
CLAIM = ("--target=kubernetes", "--image=host/name:cuda", "--claim=runs")


def dry_run(*own, workdir="/runs/mine"):
  printed = io.StringIO()
  with contextlib.redirect_stdout(printed):
    status = launch.main([
        "launch.py", "--dry_run", *own, "--", *TRAIN, f"--workdir={workdir}"
    ])
  assert status == 0
  return printed.getvalue()


def test_logs_lie_in_the_home_folder_of_a_tilde(monkeypatch):
  monkeypatch.setenv("HOME", "/home/ann")
  found = job_lib.of_command(["train", "--workdir=~/runs/a"], [])
  assert found.workdir == "/home/ann/runs/a"


def test_a_sweep_is_every_combination_in_a_folder_each():
  job = job_lib.of_command([*TRAIN, "--workdir=runs/a"], FIELDS)
  assert [run.name for run in job.runs] == [
      "noise_multiplier=1,key=0", "noise_multiplier=1,key=1",
      "noise_multiplier=2.5,key=0", "noise_multiplier=2.5,key=1",
  ]
  assert job.runs[1].command == (
      *TRAIN, "--workdir=runs/a", "--resume=auto",
      "--config.mechanism.noise_multiplier=1", "--config.seed=1",
      "--workdir=runs/a/noise_multiplier=1,key=1",
  )


def test_runs_of_a_sweep_have_keys_of_their_own():
  command = [*TRAIN, "--workdir=gs://b/a", "--key_file=/runs/key"]
  first, other = job_lib.of_command(command, FIELDS[1:]).runs
  assert first.command[-1] == "--key_file=/runs/key.key=0"
  assert other.command[-1] == "--key_file=/runs/key.key=1"
  for word in ("--key_file", "-key_file=K", "--workdir", "--flagfile=F"):
    with pytest.raises(errors.RunError, match="as one word each"):
      job_lib.of_command([*command, word, "/runs/other"], FIELDS[1:])
  (alone,) = job_lib.of_command(command, []).runs
  assert alone.command[: len(command)] == tuple(command)


@pytest.mark.parametrize(
    "command", [("account", "--x"), ("train", "--resume=f")]
)
def test_a_command_is_passed_on_unread(command):
  (run,) = job_lib.of_command([*command, "--workdir=a"], []).runs
  assert run.command == (*command, "--workdir=a") and run.name == ""


@pytest.mark.parametrize("processes", [1, 2])
def test_local_processes_are_numbered_and_share_the_cores(processes):
  *lines, wait = dry_run("--target=local", f"--processes={processes}").split(
      "\n"
  )[:-1]
  assert wait == "wait" and len(lines) == processes
  for number, line in enumerate(lines):
    words = shlex.split(line.removesuffix(" &"))
    assert "--config.x=('a', 'b')" in words and "--resume=auto" in words
    numbered = [f"--process_id={number}", f"--num_processes={processes}"]
    shared = [word for word in words if word.startswith("JAX_NUM_CPU_DEVICES")]
    if processes == 1:
      assert not shared and not set(numbered) & set(words)
    else:
      assert set(numbered) <= set(words) and len(shared) == 1
    # No process receives a key.
    assert not any("key" in word for word in words)


def directives(script):
  return dict(
      shlex.split(line)[1].removeprefix("--").partition("=")[::2]
      for line in script.splitlines() if line.startswith("#SBATCH")
  )


def test_a_slurm_script_asks_for_nodes_and_requeues_itself(tmp_path):
  script = dry_run(
      "--target=slurm", "--nodes=2", "--processes=8", "--gpus=4",
      "--time=11:00:00", "--sbatch=--partition=long", workdir=tmp_path,
  )
  found = directives(script)
  assert found["nodes"] == "2" and found["ntasks-per-node"] == "4"
  assert found["gres"] == "gpu:4" and found["partition"] == "long"
  assert found["time"] == "11:00:00" and "requeue" in found
  assert found["output"] == f"{tmp_path}/slurm-%j.log"
  assert "scontrol requeue" in script and "JAX_NUM_CPU_DEVICES" not in script
  array = dry_run("--target=slurm", *SWEEP)
  assert directives(array)["array"] == "0-3"
  assert array.count(") run=(") == 4


@pytest.mark.parametrize(
    "own",
    [
        ("--target=local", "--processes=2", *SWEEP),
        ("--target=slurm", "--processes=2"),
        ("--target=slurm", *SWEEP),
        (*POD, "--accelerator_type=v5litepod-16", "--spot", *SWEEP),
    ],
)
def test_scripts_are_bash(own):
  done = subprocess.run(
      ["bash", "-n"], input=dry_run(*own), capture_output=True, text=True,
      check=False,
  )
  assert done.returncode == 0, done.stderr


def test_pods_find_one_another_and_errors_end_the_job():
  service, job = yaml.safe_load_all(
      dry_run(*CLAIM, "--processes=2", "--gpus=8", workdir="/runs/glyphs")
  )
  name = job["metadata"]["name"]
  assert service["metadata"]["name"] == name == "run-glyphs"
  assert service["spec"]["clusterIP"] == "None"
  spec = job["spec"]
  assert spec["completions"] == spec["parallelism"] == 2
  rules = {
      rule["onExitCodes"]["values"][0]: rule["action"]
      for rule in spec["podFailurePolicy"]["rules"] if "onExitCodes" in rule
  }
  assert rules == {75: "Ignore", 1: "FailJob"}
  pod = spec["template"]["spec"]
  (container,) = pod["containers"]
  assert container["args"][0] == "train"
  assert f"--coordinator={name}-0.{name}:8476" in container["args"]
  assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
  assert pod["securityContext"]["runAsUser"] == 1000
  claims = [v for v in pod["volumes"] if "persistentVolumeClaim" in v]
  assert claims[0]["persistentVolumeClaim"] == {"claimName": "runs"}


def test_runs_of_a_sweep_are_jobs_of_their_own():
  jobs = list(yaml.safe_load_all(dry_run(*CLAIM, *SWEEP)))
  assert len({job["metadata"]["name"] for job in jobs}) == len(jobs) == 4
  first = jobs[0]["spec"]["template"]["spec"]["containers"][0]["args"]
  assert "--workdir=/runs/mine/noise_multiplier=1,key=0" in first
  assert not any("--coordinator" in argument for argument in first)


@pytest.mark.parametrize(
    "arguments,numbered",
    [
        (("--target=local", "--", "train"), "--workdir=DIR"),
        (("--target=tpu", "--", "train", "--workdir=a"), "expected --tpu"),
        (("--target=kubernetes", "--image=i", "--", "train", "--workdir=a"),
         "expected --claim"),
        (("--target=local", "--sweep=steps=1", "--", "train", "--workdir=a"),
         "--sweep=steps=1"),
        (("--target=local", "train", "--workdir=a"), "workdir"),
        (("--target=local", "--", "train", "--workdir="), "--workdir=DIR"),
        *(
            (("--dry_run", *own, "--", "train", *rest), words)
            for own, rest, words in (
                (("--target=local", "--sweep=config.seed=0,0"),
                 ("--workdir=a",), "different values"),
                (("--target=local", *("--sweep=config.seed=0,1",) * 2),
                 ("--workdir=a",), "different values"),
                (("--target=slurm", "--processes=3", "--nodes=2"),
                 ("--workdir=a",), "a multiple of --nodes=2"),
                *(
                    (target, rest, "below /runs")
                    for target in (POD, CLAIM)
                    for rest in (
                        ("--workdir=runs/a",), ("--workdir=/runsa",),
                        ("--workdir=/runs/../a",), ("--workdir=gs://b/a",),
                        ("--workdir=/runs/a", "--key_file=/a"),
                    )
                ),
                ((*POD, "--tpu=--ssh-flag=-oProxyCommand=touch F"),
                 ("--workdir=/runs/a",), "expected --tpu"),
                ((*POD, "--image=--volume=/:/host"),
                 ("--workdir=/runs/a",), "expected --image"),
            )
        ),
    ],
)
def test_what_is_missing_is_named_before_anything_starts(
    arguments, numbered, capsys
):
  try:
    status = launch.main(["launch.py", *arguments])
  except SystemExit as e:
    status = e.code
  assert status == 1
  assert numbered in capsys.readouterr().err


def test_a_bucket_with_a_key_on_the_volume_is_launched():
  for target in (POD, CLAIM):
    text = dry_run(
        *target, "--", "train", "--key_file=/runs/key", workdir="gs://b/a"
    )
    assert "--key_file=/runs/key" in text and "--workdir=gs://b/a" in text


@pytest.mark.parametrize("base", ["a" * 300, "." * 9, "a" * 45 + "-----b", "é"])
def test_names_in_a_cluster_are_dns_labels(base):
  many = "--sweep=config.seed=" + ",".join(map(str, range(12)))
  objects = yaml.safe_load_all(
      dry_run(*CLAIM, many, "--processes=2", workdir=f"/runs/{base}")
  )
  for found in objects:
    # A pod's name has its number too.
    name = found["metadata"]["name"] + "-99"
    assert len(name) <= 63 and re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", name)


# What each program would run, as a shell of a worker or a node does.
_RECORD = """#!/bin/bash
printf '%s\\0' "$@" >> words
"""
_FAKES = {
    "sbatch": "tee job | SLURM_ARRAY_TASK_ID=1 bash",
    "srun": 'shift; exec "$@"',
    "kubectl": "cat > manifests",
    "gcloud": """
for word; do
  printf '%s\\0' "$word" >> words
  case "$word" in --command=*) exec bash -c "${word#--command=}" ;; esac
done
echo READY""",
}
HOSTILE = (
    "$(touch F)", "`touch F`", "; touch F;", "'; touch F; '", '"; touch F; "',
    "\\\\'; touch F #", "& touch F", "$$(touch F)$(HOME)", "%j ${HOME} *",
    "a\\", "é ü",
)
PLACES = {
    "local": (),
    "slurm": ("time=", "sbatch=--comment="),
    "tpu": ("tpu=x", "zone=", "image=h", "accelerator_type="),
    "kubernetes": ("image=h", "claim=", "memory="),
}


@pytest.fixture
def fakes(tmp_path, monkeypatch):
  """Put programs that record their words before those of this machine."""
  programs = tmp_path / "programs"
  programs.mkdir()
  bodies = dict.fromkeys(("sudo", "python"), "") | _FAKES
  for name, body in bodies.items():
    path = programs / name
    path.write_text("#!/bin/bash\n" + body if body else _RECORD)
    path.chmod(0o700)
  monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
  monkeypatch.setattr("sys.executable", str(programs / "python"))
  monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("target", PLACES)
@pytest.mark.parametrize("word", HOSTILE)
def test_nothing_of_a_name_is_run(fakes, tmp_path, target, word):
  own = [f"--{place}{word}" for place in PLACES[target]]
  runs = tmp_path if target in ("local", "slurm") else "/runs"
  status = launch.main([
      "launch.py", f"--target={target}", *own, f"--sweep=config.y=1,{word}",
      "--", "train", f"--config={word}", f"--config.x={word}",
      f"--workdir={runs}/{word}",
  ])
  assert status == 0 and not (tmp_path / "F").exists()
  expected = [
      "train", f"--config={word}", f"--config.x={word}",
      f"--workdir={runs}/{word}", "--resume=auto", f"--config.y={word}",
      f"--workdir={runs}/{word}/y={word}",
  ]
  if target == "kubernetes":
    *_, job = yaml.safe_load_all((tmp_path / "manifests").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    found = [
        re.sub(r"\$\$|\$\(\w+\)", lambda m: {"$$": "$"}.get(m[0], "?"), word)
        for word in container["args"]
    ]
    assert container["image"] == f"h{word}"
  else:
    found = (tmp_path / "words").read_text().split("\0")
  at = len(found) - found[::-1].index("train") - 1
  assert found[at : at + len(expected)] == expected
  if target == "tpu":
    assert f"h{word}" == found[at - 1] and f"--zone={word}" in found
  if target == "slurm":
    options = directives((tmp_path / "job").read_text())
    assert options["comment"] == word and options["time"] == word
    escaped = str(tmp_path / word).replace("%", "%%")
    assert options["output"] == f"{escaped}/slurm-%A_%a.log"


@pytest.mark.parametrize("target", PLACES)
@pytest.mark.parametrize("character", ["\n", "\r", "\x1b", "\x85", "\u2028"])
def test_control_characters_are_refused_everywhere(
    fakes, tmp_path, target, character, capsys
):
  word = f"a{character}touch F"
  places = ("sweep=config.y=1,", "config.x=", "config=", "workdir=/runs/")
  for bad in (*PLACES[target], *places):
    values = {place: "a" for place in PLACES[target]} | {bad: word}
    own = [f"--{place}{value}" for place, value in values.items()]
    hidden = [own.pop()] if bad in places[1:] else []
    with pytest.raises(SystemExit, match="1"):
      launch.main([
          "launch.py", f"--target={target}", *own, "--", "train",
          "--workdir=/runs/a", *hidden,
      ])
    (line,) = capsys.readouterr().err.splitlines()
    assert "control characters" in line
  assert not (tmp_path / "F").exists() and not (tmp_path / "words").exists()


def test_a_folder_with_a_line_break_is_refused(fakes, tmp_path, monkeypatch):
  folder = tmp_path / "a\ntouch F"
  folder.mkdir()
  monkeypatch.chdir(folder)
  with pytest.raises(SystemExit, match="1"):
    dry_run("--target=slurm", workdir="runs")


# Says a state, or ends a run with a status, each the next of a file's lines.
_GCLOUD = """#!/bin/bash
cd {folder} || exit 1
next() {{
  head -n 1 "$1"
  [ "$(wc -l < "$1")" -le 1 ] || sed -i 1d "$1"
}}
case "$*" in
  *describe*) next states ;;
  *"docker run"*) echo run >> calls; exit "$(next statuses)" ;;
  *"docker pull"*) echo pull >> calls ;;
  *delete*) echo delete >> calls ;;
  *create*) echo create >> calls ;;
esac
"""


@pytest.mark.parametrize(
    "statuses,states,status,calls",
    [
        ("0", "READY", 0, "pull run"),
        ("75 0", "READY", 0, "pull run pull run"),
        ("255 137 0", "READY", 0, "pull run pull run pull run"),
        ("1 0", "READY", 1, "pull run"),  # An error is one again.
        ("0", " READY", 0, "create pull run"),
        ("1 0", "READY PREEMPTED", 0, "pull run delete create pull run"),
    ],
)
def test_a_tpu_run_is_started_again_where_that_helps(
    tmp_path, statuses, states, status, calls
):
  gcloud = tmp_path / "gcloud"
  gcloud.write_text(_GCLOUD.format(folder=tmp_path))
  gcloud.chmod(0o700)
  for name, text in (("statuses", statuses), ("states", states)):
    (tmp_path / name).write_text(text.replace(" ", "\n") + "\n")
  script = dry_run(*POD, "--accelerator_type=v5litepod-16", "--spot")
  done = subprocess.run(
      ["bash", "-c", script],
      env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
      capture_output=True, text=True, timeout=60, check=False,
  )
  assert done.returncode == status, done.stderr
  assert (tmp_path / "calls").read_text().split() == calls.split()

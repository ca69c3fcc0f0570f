"""A SLURM of one node, for real: submit, pre-empt, requeue, finish.

Runs as root where SLURM's programs are installed, as by

  apt-get install -y slurmctld slurmd slurm-client munge

The daemons are this test's own: their files lie in a temporary folder, their
ports are free ones, and they end with it.
"""

import os
import pathlib
import shutil
import subprocess
import time

import pytest

from launch import launch
from launch import local
from tests.launch import tiny

_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
_CONF = """
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
MinJobAge=300
SchedulerParameters=sched_interval=1,sched_min_interval=1
NodeName=localhost CPUs=4 RealMemory=1 State=UNKNOWN
PartitionName=test Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"""


def _missing():
  if os.geteuid() != 0:
    return "SLURM's daemons run as root"
  absent = [name for name in _PROGRAMS if shutil.which(name) is None]
  return f"not installed: {', '.join(absent)}" if absent else ""


def _ask(*command):
  return subprocess.run(
      command, capture_output=True, text=True, timeout=30
  ).stdout


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
  """A cluster of one node, whose programs `SLURM_CONF` leads to it."""
  if _missing():
    pytest.skip(_missing())
  folder = tmp_path_factory.mktemp("slurm")
  for name in ("state", "spool"):
    (folder / name).mkdir(parents=True)
  conf = folder / "slurm.conf"
  ports = local.free_port(), local.free_port()
  conf.write_text(_CONF.format(folder=folder, ports=ports))
  (folder / "munge.key").write_bytes(os.urandom(128))
  (folder / "munge.key").chmod(0o400)
  daemons = []
  commands = (
      ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key",
       f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid",
       f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed"],
      ["slurmctld", "-D", "-i", "-f", str(conf)],
      ["slurmd", "-D", "-N", "localhost", "-f", str(conf)],
  )
  environment = pytest.MonkeyPatch()
  environment.setenv("SLURM_CONF", str(conf))
  try:
    for command in commands:
      log = open(folder / f"{command[0]}.out", "wb")
      daemons.append(subprocess.Popen(command, stdout=log, stderr=log))
      log.close()
      time.sleep(0.5)
    _wait(lambda: "idle" in _ask("sinfo", "-h", "-o", "%t"), 30,
          lambda: _logs(folder))
    yield folder
  finally:
    if len(daemons) > 1:
      _ask("scancel", "--full", "--user=root")
      _ask("scancel", "--signal=KILL", "--full", "--user=root")
    for daemon in reversed(daemons):
      daemon.terminate()
      try:
        daemon.wait(10)
      except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
    environment.undo()


def _logs(folder):
  return "\n".join(
      f"{path.name}: {path.read_text(errors='replace')[-2000:]}"
      for path in sorted(folder.glob("*.out"))
  )


def _wait(holds, seconds, explain):
  end = time.monotonic() + seconds
  while not holds():
    assert time.monotonic() < end, explain()
    time.sleep(0.2)


def _show(job):
  """Return SLURM's fields of a job."""
  text = _ask("scontrol", "show", "job", "-o", job)
  return dict(part.split("=", 1) for part in text.split() if "=" in part)


@pytest.mark.slow  # A cluster, and five processes that compile.
def test_a_preempted_job_requeues_itself_and_ends_as_if_it_had_not(
    slurm, expected, tmp_path, monkeypatch
):
  monkeypatch.chdir(tiny.ROOT)
  folder = tmp_path / "two"
  status = launch.main([
      "launch.py", "--target=slurm", "--processes=2", "--cpus=1",
      "--", *tiny.TRAIN, f"--workdir={folder}",
  ])
  assert status == 0
  job = _ask("squeue", "-h", "-o", "%i").strip()

  def shown():
    log = folder / f"slurm-{job}.log"
    text = log.read_text(errors="replace")[-4000:] if log.exists() else ""
    return f"{_show(job)}\n{text}\n{_logs(slurm)}"

  _wait(lambda: tiny.steps(folder) >= 4, 60, shown)
  _ask("scancel", "--signal=TERM", job)
  _start_again(job, shown)
  assert tiny.steps(folder) < tiny.STEPS
  _wait(lambda: _show(job)["JobState"] == "COMPLETED", 90, shown)
  assert _show(job)["ExitCode"] == "0:0", shown()
  tiny.assert_same(folder, expected)
  log = (folder / f"slurm-{job}.log").read_text(errors="replace")
  assert f"status 75: requeueing job {job}" in log, log
  assert "resum" in log, log
  assert pathlib.Path(folder / "guarantee.json").exists()


# An interpreter whose processes end as the script `ends` of its folder says.
_FAKE = """#!/bin/sh
echo "process $SLURM_PROCID: $*"
. {folder}/ends
"""


@pytest.fixture
def submit(monkeypatch, tmp_path, slurm):
  """Submit a job of two processes that end as a script says."""

  def make(ends, *arguments):
    (tmp_path / "ends").write_text(ends)
    python = tmp_path / "python"
    python.write_text(_FAKE.format(folder=tmp_path))
    python.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(python))
    assert launch.main([
        "launch.py", "--target=slurm", "--processes=2", "--cpus=1",
        *arguments, "--", *tiny.TRAIN, f"--workdir={tmp_path}",
    ]) == 0

  return make


def _ended(folder):
  """The output of all jobs by the name of its file, once none is left."""
  _wait(lambda: not _ask("squeue", "-h"), 60, lambda: _ask("squeue", "-l"))
  return {path.name: path.read_text() for path in folder.glob("*.log")}


@pytest.mark.slow  # A cluster.
def test_an_error_of_one_process_is_not_queued_again(submit, tmp_path):
  # The other is asked to stop, and would ask to be started again.
  submit("""
      [ "$SLURM_PROCID" = 0 ] && exit 1
      trap 'exit 75' TERM; sleep 60 & wait""", "--sweep=config.seed=0,1")
  found = _ended(tmp_path)
  names = sorted(name.rpartition("_")[2] for name in found)
  assert names == ["0.log", "1.log"]  # One for each task of the array.
  for name, text in found.items():
    assert "requeueing" not in text
    key = name[-len("0.log")]
    assert f"--config.seed={key} --workdir={tmp_path}/key={key}\n" in text


@pytest.mark.slow  # A cluster.
def test_a_job_of_which_a_process_was_killed_is_queued_again(
    submit, slurm, tmp_path
):
  submit("""
      [ "${SLURM_RESTART_COUNT:-0}" = 1 ] && exit 0
      [ "$SLURM_PROCID" = 1 ] && kill -KILL $$
      trap 'exit 75' TERM; sleep 60 & wait""")
  job = _ask("squeue", "-h", "-o", "%i").strip()
  _start_again(job, lambda: _logs(slurm))
  (text,) = _ended(tmp_path).values()
  assert "status 137: requeueing job" in text
  assert _show(job)["JobState"] == "COMPLETED"


@pytest.mark.slow  # A cluster.
def test_a_job_that_ctrl_c_stopped_is_not_queued_again(submit, tmp_path):
  submit("exit 130")
  (text,) = _ended(tmp_path).values()
  assert "requeueing" not in text


def _start_again(job, explain):
  """Waits until a job is queued again, and lets it start."""
  _wait(lambda: _show(job)["Restarts"] == "1", 60, explain)
  # SLURM lets a requeued job wait for two minutes; an operator does not.
  _wait(lambda: _show(job)["JobState"] == "PENDING", 30, explain)
  _ask("scontrol", "update", f"JobId={job}", "StartTime=now")

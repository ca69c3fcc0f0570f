"""The benchmark of streaming, at its smallest size, prints what it promises."""

import json
import os
import pathlib
import subprocess
import sys

QUICK = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # To compile.
ROOT = pathlib.Path(__file__).resolve().parents[3]


def _run(*arguments):
  return subprocess.run(
      [sys.executable, "-m", "experiments.benchmarks.streaming", *arguments],
      cwd=ROOT, env=os.environ | QUICK, capture_output=True, text=True,
      timeout=400,
  )


def test_prints_times_and_ratios():
  done = _run(
      "--workloads=data", "--repeats=2", "--steps=1", "--participants=4",
      "--tasks=2",
  )
  assert done.returncode == 0, done.stderr
  found = json.loads(done.stdout)
  assert {"device", "jax", "cpus", "load"} <= found["machine"].keys()
  (workload,) = found["workloads"].values()
  assert workload["images_bytes"] == 4 * 50 * 84 * 84 * 3
  assert workload["cases"].keys() == {"resident", "streamed", "mapped"}
  for name, case in workload["cases"].items():
    assert 0 < case["fastest"] <= case["seconds_per_step"] <= case["slowest"]
    assert case["cpu_share"] > 0
    assert (name == "resident") <= (case["beside_resident"] == 1)


def test_unknown_workloads_are_named():
  done = _run("--workloads=disk")
  assert done.returncode == 1
  assert "unknown workload 'disk'" in done.stderr

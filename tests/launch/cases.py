"""Dry runs, whose texts are compared with files in expected/.

  python tests/launch/cases.py     # writes them anew, from the project's root

DIR stands for a folder that is there.
"""

import contextlib
import io
import pathlib
import sys

EXPECTED = pathlib.Path(__file__).with_name("expected")
_GLYPHS = ("train", "--config=glyphs")
_SWEEP = ("--sweep=config.mechanism.noise_multiplier=1,2.5", "--keys=2")
_IMAGE = "--image=registry.example.org/episodic-dp:{}"
_PYTHON = "--python=python3"
_POD = (
    "--target=tpu", "--tpu=pod", "--zone=us-east5-a",
    _IMAGE.format("tpu"),
)  # fmt: skip
_BUCKET = (*_GLYPHS, "--workdir=gs://bucket/glyphs")
_CLAIM = (*_GLYPHS, "--workdir=/runs/glyphs")

# File -> the launcher's arguments.
CASES = {
    "local_one.sh": (
        "--target=local", _PYTHON, "--",
        *_GLYPHS, "--config.steps=10", "--workdir=DIR/my runs",
    ),
    "local_sweep.sh": (
        "--target=local", _PYTHON, "--processes=2", "--port=9999",
        "--device=gpu", *_SWEEP, "--",
        *_GLYPHS, "--workdir=DIR",
    ),
    "slurm_cpu.sh": (
        "--target=slurm", _PYTHON, "--processes=2", "--cpus_per_process=12",
        "--", *_GLYPHS, "--workdir=DIR", "--config.steps=10",
    ),
    "slurm_gpu.sh": (
        "--target=slurm", _PYTHON, "--nodes=2", "--gpus_per_node=4",
        "--time=11:00:00", "--grace=300", "--name=two nodes",
        "--sbatch=--partition=long", "--setup=module load cuda",
        "--", *_BUCKET,
    ),
    "slurm_sweep.sh": (
        "--target=slurm", _PYTHON, *_SWEEP, "--", *_GLYPHS, "--workdir=DIR",
    ),
    "tpu.sh": (
        *_POD, "--accelerator_type=v5litepod-16", "--spot", "--delete",
        "--", *_BUCKET, "--config.plan.stages=('Poisson(0.02)',"
        " 'FixedSize(5)', 'FixedSize(3)')",
    ),
    "tpu_sweep.sh": (*_POD, "--project=mine", *_SWEEP, "--", *_BUCKET),
    "kubernetes_one.yaml": (
        "--target=kubernetes", _IMAGE.format("cpu"), "--claim=runs",
        "--", *_CLAIM,
    ),
    "kubernetes_gpu.yaml": (
        "--target=kubernetes", _IMAGE.format("cuda"), "--claim=runs",
        "--processes=2", "--device=gpu", "--gpus=8", "--name=glyphs-1",
        "--namespace=lab", "--", *_CLAIM,
    ),
    "kubernetes_sweep.yaml": (
        "--target=kubernetes", _IMAGE.format("cpu"), "--processes=2",
        "--service_account=trainer", *_SWEEP, "--", *_BUCKET,
    ),
    "kubernetes_tpu.yaml": (
        "--target=kubernetes", _IMAGE.format("tpu"), "--device=tpu",
        "--gpus=4", "--processes=4", "--tpu_accelerator=tpu-v5-lite-podslice",
        "--tpu_topology=4x4", "--", *_BUCKET,
    ),
    "jobset_tpu.yaml": (
        "--target=kubernetes", _IMAGE.format("tpu"), "--device=tpu",
        "--gpus=4", "--processes=4", "--slices=2",
        "--tpu_accelerator=tpu-v5-lite-podslice", "--tpu_topology=4x4",
        "--", *_BUCKET,
    ),
}  # fmt: skip


def render(name, folder):
  """What the dry run of a case prints, with DIR for the folder."""
  from launch import launch  # Lazy import: a script sets the path first.

  arguments = [part.replace("DIR", str(folder)) for part in CASES[name]]
  printed = io.StringIO()
  with contextlib.redirect_stdout(printed):
    status = launch.main(["launch.py", "--dry_run", *arguments])
  assert status == 0
  return printed.getvalue().replace(str(folder), "DIR")


if __name__ == "__main__":
  sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
  EXPECTED.mkdir(exist_ok=True)
  for _name in CASES:
    (EXPECTED / _name).write_text(
        render(_name, pathlib.Path("/tmp")), encoding="utf-8"
    )

"""What a dry run prints: as expected, and taken by the tools that read it."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.launch import cases

_SCRIPTS = sorted(name for name in cases.CASES if name.endswith(".sh"))
_MANIFESTS = sorted(name for name in cases.CASES if name.endswith(".yaml"))
_BIN = pathlib.Path(sys.executable).parent


def _expected(name):
  return (cases.EXPECTED / name).read_text(encoding="utf-8")


def _tool(name):
  """The program, of this environment or the machine; skips without it."""
  found = shutil.which(name, path=f"{_BIN}{os.pathsep}{os.environ['PATH']}")
  if found is None:
    pytest.skip(f"{name} is not installed")
  return found


@pytest.mark.parametrize("name", sorted(cases.CASES))
def test_a_dry_run_prints_what_is_expected_and_does_nothing(name, tmp_path):
  assert cases.render(name, tmp_path) == _expected(name), (
      "python tests/launch/cases.py writes the files anew"
  )
  assert not any(tmp_path.iterdir())


def test_nothing_else_is_expected():
  assert {path.name for path in cases.EXPECTED.iterdir()} == set(cases.CASES)


def test_shell_passes_shellcheck():
  # SC2034: a body need not read all that its head sets. Those of the local
  # target are lines for a shell, without a first line that says which.
  done = subprocess.run(
      [_tool("shellcheck"), "--shell=bash", "--severity=style",
       *(cases.EXPECTED / name for name in _SCRIPTS)],
      capture_output=True,
      text=True,
  )  # fmt: skip
  assert done.returncode == 0, done.stdout + done.stderr


def test_manifests_pass_kubernetes_validate(tmp_path):
  tool = _tool("kubernetes-validate")
  checked = [name for name in _MANIFESTS if not name.startswith("jobset")]
  assert len(checked) > 3
  done = subprocess.run(
      [tool, "--strict", *(cases.EXPECTED / name for name in checked)],
      capture_output=True,
      text=True,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  # That it would notice.
  wrong = tmp_path / "wrong.yaml"
  text = _expected(checked[0])
  wrong.write_text(text.replace("completions:", "completion:"))
  done = subprocess.run([tool, "--strict", wrong], capture_output=True)
  assert done.returncode != 0


def _gcloud_commands(script):
  """The gcloud commands of a script, with the values of its variables."""
  arrays = dict(re.findall(r"^(\w+)=\((.*)\)$", script, re.MULTILINE))
  plain = dict(re.findall(r"^(\w+)=([^(\n]*)$", script, re.MULTILINE))
  for name, value in arrays.items():
    script = script.replace(f'"${{{name}[@]}}"', value)
  script = script.replace('--command="$1"', "--command=true")
  for name, value in plain.items():
    script = script.replace(f'"${name}"', value)
  script = script.replace("\\\n", " ")
  ends = r"(?=\s*(?:2>|&&|$))"
  found = re.findall(rf"^\s*(gcloud .*?){ends}", script, re.MULTILINE)
  return [shlex.join(shlex.split(text)) for text in found]


@pytest.mark.slow  # gcloud takes seconds to begin.
def test_gcloud_lines_pass_its_linter(tmp_path):
  tool = _tool("gcloud")
  commands = _gcloud_commands(_expected("tpu.sh"))
  assert len(commands) == 5, commands
  # And one that is wrong, so that it would notice.
  commands.append("gcloud compute tpus tpu-vm ssh pod --workers=all")
  path = tmp_path / "commands.json"
  path.write_text(json.dumps([{"command_string": text} for text in commands]))
  done = subprocess.run(
      [tool, "meta", "lint-gcloud-commands", f"--commands-file={path}"],
      capture_output=True,
      text=True,
      env=os.environ | {"CLOUDSDK_CONFIG": str(tmp_path)},
  )
  if done.returncode != 0:
    pytest.skip(f"gcloud's linter does not run here: {done.stderr[-300:]}")
  *good, bad = json.loads(done.stdout)
  assert all(found["success"] for found in good), done.stdout
  assert not bad["success"]


def test_pods_of_a_run_know_one_another_and_who_is_an_error():
  service, job = yaml.safe_load_all(_expected("kubernetes_gpu.yaml"))
  spec = job["spec"]
  assert spec["completions"] == spec["parallelism"] == 2
  pod = spec["template"]["spec"]
  (container,) = pod["containers"]
  # The first pod of an Indexed Job is NAME-0, below the Service's name.
  assert service["spec"]["clusterIP"] == "None"
  assert pod["subdomain"] == service["metadata"]["name"] == "glyphs-1"
  assert "--coordinator=glyphs-1-0.glyphs-1:8476" in container["args"]
  assert "--process_id=$(JOB_COMPLETION_INDEX)" in container["args"]
  rules = spec["podFailurePolicy"]["rules"]
  codes = {
      code: rule["action"]
      for rule in rules
      for code in rule.get("onExitCodes", {}).get("values", [])
  }
  assert codes == {75: "Ignore", 1: "FailJob"}
  assert {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]
          } in rules  # fmt: skip


def test_slices_are_made_again_together():
  (jobs,) = yaml.safe_load_all(_expected("jobset_tpu.yaml"))
  (slices,) = jobs["spec"]["replicatedJobs"]
  assert slices["replicas"] == 2
  spec = slices["template"]["spec"]
  # No pod of a slice is made again by itself, while the others wait.
  assert spec["backoffLimit"] == 0
  assert [r["action"] for r in spec["podFailurePolicy"]["rules"]] == ["FailJob"]


@pytest.mark.parametrize("name", sorted(cases.CASES))
def test_no_text_holds_a_key_or_a_variable_for_one(name):
  text = _expected(name).lower()
  for word in ("secret", "private_seed", "password", "token="):
    assert word not in text
  # 64 bits or more, in hexadecimal digits or in base 64.
  assert not re.search(r"\b(?=\w*\d)[0-9a-f]{16,}\b", text)
  assert not re.search(r"[A-Za-z0-9+]{40,}", text)

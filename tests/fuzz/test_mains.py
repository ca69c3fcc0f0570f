"""Every main, given wrong flags and wrong files: one sentence, no traceback.

The mains are found, not listed: a new one is tried too.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

from absl import flags
import numpy as np
import pytest

from episodic_dp.cli import commands
from tests.fuzz import damage

ROOT = pathlib.Path(__file__).resolve().parents[2]
_DEFINED = re.compile(r'(?:flags|config_flags)\.DEFINE_(\w+)\(\s*"(\w+)"')


def _defined(name: str) -> dict[str, str]:
  """The flags of a command: name -> type."""
  result = {}
  for flag in commands.define_flags(commands.module(name)):
    kind = flags.FLAGS[flag].flag_type()
    if flag == "config":
      kind = "config_file"
    result[flag] = kind
    delattr(flags.FLAGS, flag)  # Another command may have one of that name.
  return result


def _mains() -> dict[str, dict[str, str]]:
  """Mains of absl, by name, and what each defines: name -> type."""
  found = {name: _defined(name) for name in commands.COMMANDS}
  for path in sorted((ROOT / "experiments").rglob("*.py")):
    text = path.read_text(encoding="utf-8")
    if "app.run(" in text and "__main__" in text:
      parts = path.relative_to(ROOT / "experiments").with_suffix("").parts
      found[".".join(parts)] = {
          flag: kind for kind, flag in _DEFINED.findall(text)
      }
  return found


MAINS = _mains()
GLYPHS = "glyphs"
# What a main needs before it looks at the flag in question.
NEEDED = {
    "config": f"{GLYPHS}:steps=2",
    "workdir": "no-such-folder",
    "out": "no-such-folder/x",
    "target": "learners",
    "scale": "quick",
}


def run(cases, folder):
  """Results of (module, arguments), from forks of one process."""
  done = subprocess.run(
      [sys.executable, str(pathlib.Path(__file__).with_name("run_mains.py"))],
      input=json.dumps(
          [{"module": name, "arguments": [*given]} for name, given in cases]
      ),
      env=os.environ | {"ROOT": str(ROOT), "JAX_PLATFORMS": "cpu",
                        "EPISODIC_DP_CACHE": "off"},
      cwd=folder, capture_output=True, text=True, timeout=600,
  )  # fmt: skip
  assert not done.returncode, done.stderr[-3000:]
  return json.loads(done.stdout)


def wrong(case, result) -> str | None:
  """What is wrong with the end of a main that had to fail."""
  errors = [
      line for line in result["err"].splitlines() if line.startswith("error: ")
  ]
  if "Traceback" in result["err"] + result["out"]:
    return f"{case}: {result['err'][-600:]}"
  if result["status"] != 1 or len(errors) != 1:
    return f"{case}: status {result['status']}, {result['err'][-300:]!r}"
  if not 20 <= len(errors[0]) <= 2500:
    return f"{case}: {errors[0][:200]!r}"
  return None


def needed(name, *without):
  return [
      f"--{flag}={value}"
      for flag, value in NEEDED.items()
      if flag in MAINS[name] and flag not in without
  ]


def flag_cases():
  """Flags that are unknown, of another type, or without a value."""
  cases = []
  for name, defined in MAINS.items():
    cases += [
        (name, ["--nonsense=1"]),
        (name, [*needed(name), "stray"]),
        (name, ["--nonsense"]),
        (name, ["-\u00e9=1"]),
    ]
    for flag, kind in defined.items():
      given = needed(name, flag)
      if kind in ("int", "integer", "float"):
        cases += [(name, [*given, f"--{flag}={v}"]) for v in ("", "x", "1..2")]
      elif kind in ("bool", "boolean"):
        cases += [(name, [*given, f"--{flag}=perhaps"])]
      elif kind in ("enum", "string enum"):
        cases += [(name, [*given, f"--{flag}=no-such-choice"])]
      elif kind == "config_file":
        cases += [
            (name, [*given, "--config=no-such-file.py"]),
            (name, [*given, "--config="]),
            (name, [*given, f"--config={GLYPHS}:nonsense=1"]),
            (name, [*given, f"--config={GLYPHS}:steps=x"]),
            (name, [*given, f"--config={GLYPHS}", "--config.nonsense=1"]),
            (name, [*given, f"--config={GLYPHS}", "--config.steps=x"]),
        ]
      if kind not in ("bool", "boolean"):
        cases += [(name, [*needed(name, flag), f"--{flag}"])]
  return cases


def test_the_mains_are_found():
  for name in ("train", "account", "evaluate", "inspect", "fine-tune",
               "reproduce", "evidence.__main__", "benchmarks.__main__"):
    assert name in MAINS, sorted(MAINS)
  assert MAINS["fine-tune"]["steps"] == "int"
  assert MAINS["train"]["config"] == "config_file"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Where the mains run: with files that are no data, no run, no config."""
  folder = tmp_path_factory.mktemp("mains")
  marker = damage.Marker(folder / "code-ran")
  (folder / "a-file").write_text("x")
  (folder / "empty").mkdir()
  (folder / "broken.py").write_text("def get_config(:\n")
  (folder / "nothing.py").write_text("x = 1\n")
  (folder / "binary.py").write_bytes(b"\0\xff" * 50)
  for i, content in enumerate(damage.pickles(marker)):
    (folder / f"pickle{i}.json").write_bytes(content)
    (folder / f"pickle{i}.npz").write_bytes(content)
  run_of = folder / "run"
  (run_of / "checkpoints").mkdir(parents=True)
  (run_of / "config.json").write_bytes(damage.pickles(marker)[0])
  return folder


def file_cases():
  """Files and folders that are missing, of another kind, or pickles."""
  own = "own_data"
  cases = [
      ("account", []),
      ("verify", []),
      ("verify", ["a-file", "b-file"]),
      ("verify", ["a-file", "--public_key=a-file"]),
      ("verify", ["a-file", "--public_key=empty"]),
      ("verify", ["a-file", "--weights=empty"]),
      ("sign", []),
      ("sign", ["--key=empty", "--statement=a-file"]),
      ("sign", ["--key=a-file", "--statement=nowhere"]),
      ("sign", ["--new_key=a-file"]),
      ("sign", ["--new_key=a-file/x"]),
      ("calibrate", [f"--config={GLYPHS}"]),
      ("calibrate", [f"--config={GLYPHS}", "--epsilon=-1"]),
      ("account", [f"--config={GLYPHS}", "--sweep=nonsense"]),
      ("account", [f"--config={GLYPHS}", "--statement=a-file/x.json"]),
      ("inspect", [f"--config={GLYPHS}", "--nodata", "--out=a-file/x"]),
      ("train", [f"--config={own}", "--workdir=w", "--data_dir=nowhere"]),
      ("train", [f"--config={own}", "--workdir=w", "--data_dir=a-file"]),
      ("train", [f"--config={own}", "--workdir=w", "--data_dir=empty"]),
      ("train", [f"--config={own}", "--workdir=w", "--data_dir=pickle0.npz"]),
      ("train", [f"--config={GLYPHS}", "--workdir=w", "--process_id=3"]),
  ]  # fmt: skip
  for config in ("broken.py", "nothing.py", "binary.py", "empty"):
    for name in ("train", "account", "inspect"):
      given = needed(name, "config")
      cases.append((name, [*given, f"--config={config}"]))
  for path in ("a-file", "empty", "nowhere", "pickle0.json", "pickle2.json"):
    cases.append(("verify", [path]))
  for path in ("a-file", "empty", "nowhere", "run"):
    cases.append(("evaluate", [f"--workdir={path}"]))
    cases.append(("fine-tune", [f"--workdir={path}", "--out=x"]))
    cases.append(("export", [f"--workdir={path}", "--out=x"]))
    cases.append((
        "adapt",
        [f"--model={path}", "--support=empty", "--query=empty", "--out=x"],
    ))
  for text in ("__import__('os').mkdir('code-ran')", "Poisson(2)", "All", "()",
               "FixedSize(-1)", "Poisson(__import__('os').mkdir('code-ran'))"):
    cases.append(("account", [
        f"--config={GLYPHS}",
        f"--config.plan.stages=({text!r}, 'All()', 'All()')",
    ]))  # fmt: skip
  return cases


def check(cases, folder):
  results = run(cases, folder)
  found = [wrong(case, result) for case, result in zip(cases, results)]
  assert [text for text in found if text] == []
  assert not (folder / "code-ran").exists()
  return results


def test_wrong_flags_are_one_sentence(folder):
  cases = flag_cases()
  rng = np.random.default_rng(0)
  few = [cases[i] for i in rng.permutation(len(cases))[:6]]
  assert len(check(few, folder)) == 6


def test_wrong_files_are_one_sentence_and_run_no_code(folder):
  cases = file_cases()
  few = cases[:: len(cases) // 8]
  assert len(check(few, folder)) > 6


@pytest.mark.slow
def test_all_wrong_files(folder):
  cases = file_cases()
  assert len(check(cases, folder)) == len(cases) > 40
  # A config is a program: the one thing that is run, by name.
  assert (folder / "a-file").read_text() == "x"


@pytest.mark.slow
def test_all_wrong_flags(folder):
  cases = flag_cases()
  assert len(check(cases, folder)) > 150


def test_a_traceback_is_seen():
  planted = {"status": 1, "out": "", "err": "Traceback\nValueError: x"}
  assert wrong("planted", planted) is not None
  silent = {"status": 0, "out": "fine", "err": ""}
  assert wrong("planted", silent) is not None
  right = {"status": 1, "out": "", "err": "error: the flag --x is missing\n"}
  assert wrong("planted", right) is None

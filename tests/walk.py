"""The first minutes with an installed package, as one program.

    python tests/walk.py PROGRAM

runs PROGRAM (`episodic-dp` of some environment) in an empty folder: version,
account, train, evaluate, verify. It reads nothing of the package itself, so
that it can try an environment in which nothing else is.
"""

from collections.abc import Callable
import json
import pathlib
import subprocess
import sys
import tempfile

# The smallest run: a perceptron on points.
TINY = (
    "--config=sinusoid:participants=200,rate=0.02,steps=2,inner_steps=1,"
    "width=4",
    "--config.data.options.validation_participants=3",
    "--config.data.options.test_participants=4",
    "--config.evaluation.validation_tasks=3",
    "--config.evaluation.test_tasks=4",
)


def walk(run: Callable[..., str], folder: pathlib.Path) -> None:
  """Tries the commands; `run` calls one in the folder and returns its output.

  Raises:
    AssertionError: one prints something else than it should.
  """
  assert run("--version").startswith("episodic-dp ")
  assert "participant" in run(
      "account", "--config=glyphs", "--statement=statement.json"
  )
  assert "FALSE" not in run("verify", "statement.json")
  assert "done after step 2" in run("train", *TINY, "--workdir=run")
  assert "last checkpoint" in run("evaluate", "--workdir=run")
  assert "FALSE" not in run("verify", "run/guarantee.json")
  found = json.loads((folder / "run" / "guarantee.json").read_text())
  assert list(found["guarantees"]) == ["participant", "point"]


def main(program: str) -> None:
  """Walks in a separate folder."""
  with tempfile.TemporaryDirectory() as name:

    def run(*arguments: str) -> str:
      print("$ episodic-dp", *arguments, flush=True)
      return subprocess.run(
          [program, *arguments], cwd=name, check=True, text=True,
          stdout=subprocess.PIPE,
      ).stdout

    walk(run, pathlib.Path(name))
  print("the walk is done")


if __name__ == "__main__":
  main(str(pathlib.Path(sys.argv[1]).absolute()))

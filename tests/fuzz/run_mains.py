"""Runs command lines of mains, each in a fork of one process.

  python -m tests.fuzz.run_mains < cases.json > results.json

What takes seconds to import is imported once, before the forks. A case is
{"module", "arguments"}, a result {"status", "out", "err"}; a main that is not
done after 60 seconds is killed and has status -9.
"""

import json
import os
import runpy
import signal
import sys
import tempfile


def _child(case, out, err):
  os.dup2(out, 1)
  os.dup2(err, 2)
  os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
  sys.stdout = os.fdopen(1, "w", closefd=False)
  sys.stderr = os.fdopen(2, "w", closefd=False)
  sys.argv = [case["module"], *case["arguments"]]
  status = 70
  from episodic_dp.cli import commands  # Found once main() set the path.

  try:
    if case["module"] in commands.COMMANDS:
      commands.main(["episodic-dp", case["module"], *case["arguments"]])
    else:
      runpy.run_module(f"experiments.{case['module']}", run_name="__main__")
    status = 0
  except SystemExit as e:
    status = 0 if e.code is None else e.code
    if not isinstance(status, int):
      print(status, file=sys.stderr)
      status = 1
  except BaseException:  # Python would print it.
    sys.excepthook(*sys.exc_info())
    status = 1
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(status)


def run(case):
  with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
    child = os.fork()
    if not child:
      signal.alarm(60)
      _child(case, out.fileno(), err.fileno())
    _, ended = os.waitpid(child, 0)
    texts = []
    for file in (out, err):
      file.seek(0)
      texts.append(file.read().decode(errors="replace"))
  status = os.waitstatus_to_exitcode(ended)
  return {"status": status, "out": texts[0], "err": texts[1]}


def main():
  cases = json.load(sys.stdin)
  sys.path.insert(0, os.environ["ROOT"])
  # No flags are defined by these, and no device is looked for yet.
  from episodic_dp.analysis import costs  # noqa: F401
  from episodic_dp.analysis import measure  # noqa: F401
  from episodic_dp.config import build  # noqa: F401
  import episodic_dp.training  # noqa: F401

  json.dump([run(case) for case in cases], sys.stdout)


if __name__ == "__main__":
  main()

"""Exit statuses of commands, which launchers read.

0: finished, with all steps or all that the budget allows. 75: stopped by
SIGTERM, SIGUSR1, --time_limit or the loss of another process; the same command
resumes the run, so a launcher queues it again. 130: Ctrl-C. 1: an error, in one
sentence on the error stream.
"""

FINISHED = 0
ERROR = 1
REQUEUE = 75  # EX_TEMPFAIL of sysexits.h.
INTERRUPTED = 130  # 128 + SIGINT, as in shells.

_OF = {"done": FINISHED, "budget": FINISHED, "SIGINT": INTERRUPTED}


def of(stopped: str) -> int:
  """Return the status for a `training.Result.stopped`."""
  return _OF.get(stopped, REQUEUE)

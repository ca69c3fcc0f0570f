"""Exit status of a command, on which launchers act.

0 is finished: all steps, or all that the budget allows. 75 is stopped by
SIGTERM, SIGUSR1, --time_limit or the loss of another process: the same command
resumes, so that a launcher queues it again. 130 is Ctrl-C. 1 is an error, in
one sentence on the error stream.
"""

FINISHED = 0
ERROR = 1
REQUEUE = 75  # EX_TEMPFAIL of sysexits.h.
INTERRUPTED = 130  # 128 + SIGINT, as shells have it.

_OF = {"done": FINISHED, "budget": FINISHED, "SIGINT": INTERRUPTED}


def of(stopped: str) -> int:
  """Return the status of a run that ended so (`training.Result.stopped`)."""
  return _OF.get(stopped, REQUEUE)

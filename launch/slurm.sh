# The signals that stop the run are not to stop a shell before it has told how
# the run ended.
trap ':' TERM USR1

# Where one process dies, SLURM tells the others to stop. Of all statuses srun
# returns the largest, so that an error (250) is not taken for a stopped run.
# shellcheck disable=SC2016
srun --kill-on-bad-exit=1 bash -c '
  trap ":" TERM USR1
  "$@"
  status=$?
  case "$status" in
    0 | 75) exit "$status" ;;
    *) if [ "$status" -gt 128 ]; then exit "$status"; else exit 250; fi ;;
  esac' process "$python" -m episodic_dp "${run[@]}"
status=$?

# 75: stopped by a signal, or a peer was lost; 130: by Ctrl-C (scancel
# --signal=INT), not to be resumed; others above 128: killed by a signal.
again=no
if [ "$status" -eq 250 ]; then
  status=1
elif [ "$status" -eq 75 ]; then
  again=yes
elif [ "$status" -gt 130 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 3 ]; then
  again=yes
fi
if [ "$again" = yes ]; then
  echo "status $status: requeueing job $SLURM_JOB_ID"
  # It fails where SLURM, which pre-empted the job, requeues it itself.
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"

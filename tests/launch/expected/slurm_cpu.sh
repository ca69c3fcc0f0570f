#!/bin/bash
#SBATCH --job-name=glyphs
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=12
#SBATCH --requeue
#SBATCH --signal=USR1@120
#SBATCH --open-mode=append
#SBATCH --output=DIR/slurm-%j.log
# Written by launch/launch.py; docs/clusters.md says what it does.
set -u

restarts=3
cpus_per_process=12
export JAX_NUM_CPU_DEVICES=8
train=(python3 -m episodic_dp train)
train+=(--config=glyphs --workdir=DIR --config.steps=10)
requeued_flags=(--resume=must)

# A run that was begun in a folder is to be there: one without is an error, such
# as that of a node that does not mount it.
requeued="${SLURM_RESTART_COUNT:-0}"
if [ "$requeued" -gt 0 ]; then
  train+=("${requeued_flags[@]}")
fi

# The signals that stop the run are not to stop a shell before it has told how
# the run ended.
trap ':' TERM USR1

# Where one process dies, SLURM tells the others to stop. Of all statuses srun
# returns the largest, so that an error (250) is not taken for a stopped run.
# shellcheck disable=SC2016
srun --kill-on-bad-exit=1 --cpus-per-task="$cpus_per_process" bash -c '
  trap ":" TERM USR1
  "$@"
  status=$?
  case "$status" in
    0 | 75) exit "$status" ;;
    *) if [ "$status" -gt 128 ]; then exit "$status"; else exit 250; fi ;;
  esac' process "${train[@]}"
status=$?

# 75: stopped by a signal, or a peer was lost; 130: by Ctrl-C (scancel
# --signal=INT), which is not to go on; others above 128: killed by a signal.
again=no
if [ "$status" -eq 250 ]; then
  status=1
elif [ "$status" -eq 75 ]; then
  again=yes
elif [ "$status" -eq 130 ]; then
  again=no
elif [ "$status" -gt 128 ] && [ "$requeued" -lt "$restarts" ]; then
  again=yes
fi
if [ "$again" = yes ]; then
  echo "status $status: requeueing job $SLURM_JOB_ID"
  # It fails where SLURM, which pre-empted the job, requeues it itself.
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"

#!/bin/bash
# Written by launch/launch.py; docs/clusters.md says what it does.
set -u
export CLOUDSDK_CORE_DISABLE_PROMPTS=1

tpu=pod
where=(--zone=us-east5-a)
made=(--accelerator-type=v5litepod-16 --version=tpu-ubuntu2204-base --spot)
image=registry.example.org/episodic-dp:tpu
registry=registry.example.org
spot=yes
delete=yes
restarts=3
grace=120

# Runs a command on every worker at once; its status is that of the first
# worker which failed.
on_workers() {
  gcloud compute tpus tpu-vm ssh "$tpu" "${where[@]}" --worker=all \
    --command="$1"
}

state() {
  gcloud compute tpus tpu-vm describe "$tpu" "${where[@]}" \
    --format='value(state)' 2>/dev/null
}

# Makes the TPU VM unless it is there, and brings the container to its workers.
prepare() {
  case "$(state)" in
    READY) ;;
    PREEMPTED | TERMINATED)
      [ "$spot" = yes ] || return 1
      gcloud compute tpus tpu-vm delete "$tpu" "${where[@]}" --quiet &&
        create || return
      ;;
    *) create || return ;;
  esac
  on_workers "sudo gcloud auth configure-docker $registry --quiet &&
    sudo docker pull --quiet $image"
}

create() {
  if [ "${#made[@]}" -eq 0 ]; then
    echo "error: there is no TPU VM $tpu: say which with --accelerator_type" >&2
    return 1
  fi
  gcloud compute tpus tpu-vm create "$tpu" "${where[@]}" "${made[@]}"
}

# Trains one run to its end: with the same command again after status 75, after
# a lost connection or machine, and where a process was killed.
train() {
  local again=() attempt=0 arguments status
  while true; do
    # Quoted once more, for the shell of the workers.
    arguments="$(printf '%q ' "$@" --coordinator=auto "${again[@]}")"
    # A container that outlived its connection holds the devices and the run.
    on_workers "sudo docker stop --time $grace episodic-dp >/dev/null 2>&1
      sudo docker run --rm --name episodic-dp --privileged --net host \
        $image train $arguments"
    status=$?
    case "$status" in
      0) return 0 ;;
      1 | 2 | 125 | 126 | 127 | 130)
        [ "$(state)" = READY ] && return "$status"
        ;;
    esac
    if [ "$attempt" -ge "$restarts" ]; then
      echo "error: status $status after $attempt restarts; the same command" \
        "goes on from the last checkpoint" >&2
      return "$status"
    fi
    attempt=$((attempt + 1))
    echo "status $status: starting it again ($attempt of $restarts)" >&2
    prepare || return
    again=(--resume=auto)
  done
}

finish() {
  if [ "$delete" = yes ]; then
    gcloud compute tpus tpu-vm delete "$tpu" "${where[@]}" --quiet
  fi
  exit "$1"
}

fail() {
  finish "$?"
}

prepare || fail
train --config=glyphs --workdir=gs://bucket/glyphs '--config.plan.stages=('"'"'Poisson(0.02)'"'"', '"'"'FixedSize(5)'"'"', '"'"'FixedSize(3)'"'"')' || fail
finish 0

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
  # What a shell of the workers reads is quoted once more.
  local host name
  host="$(printf '%q' "$registry")"
  name="$(printf '%q' "$image")"
  on_workers "sudo gcloud auth configure-docker $host --quiet &&
    sudo docker pull --quiet $name &&
    sudo install -d -o 1000 /var/lib/episodic-dp"
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
  local attempt=0 words status
  words="$(printf '%q ' "$image" "$@" --coordinator=auto)"
  while true; do
    # A container that outlived its connection holds the devices and the run.
    on_workers "sudo docker stop --time 120 episodic-dp >/dev/null 2>&1
      sudo docker run --rm --name episodic-dp --privileged --net host \
        --volume /var/lib/episodic-dp:/runs $words"
    status=$?
    case "$status" in
      0) return 0 ;;
      1 | 2 | 125 | 126 | 127 | 130)
        [ "$(state)" = READY ] && return "$status"
        ;;
    esac
    if [ "$attempt" -ge 3 ]; then
      echo "error: status $status after $attempt restarts; the same command" \
        "resumes from the last checkpoint" >&2
      return "$status"
    fi
    attempt=$((attempt + 1))
    echo "status $status: starting it again ($attempt of 3)" >&2
    prepare || return
  done
}

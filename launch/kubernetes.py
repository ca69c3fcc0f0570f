"""Kubernetes: an Indexed Job with a headless Service, as plain values.

A pod is a process. A headless Service gives the first pod's name an address.
With it and with their indices the pods find one another.
"""

import shutil
import subprocess
from typing import Any

import yaml

from episodic_dp import errors
from launch import job as job_lib

MOUNT = "/runs"  # Of the claim, in the pods.
_PORT = 8476
_USER = 1000  # Of the container; see Containerfile.
_RESTARTS = 3  # Of each pod after it was killed.
_Manifest = dict[str, Any]


def render(job: job_lib.Job, values: Any) -> str:
  """Return the manifests as YAML, for `kubectl create`.

  Raises:
    RunError: a file of a run would be lost with its pod.
  """
  job_lib.check_volume(job, MOUNT)
  documents: list[_Manifest] = []
  for number, run in enumerate(job.runs):
    name = job.name if len(job.runs) == 1 else f"{job.name}-{number}"
    documents += manifests(name, run, values)
  return yaml.safe_dump_all(documents, sort_keys=False, width=80)


def manifests(name: str, run: job_lib.Run, values: Any) -> list[_Manifest]:
  """Return a Job of one run, and a Service to connect pods."""
  metadata: _Manifest = {
      "name": name,
      "labels": {"app.kubernetes.io/name": "episodic-dp"},
      "annotations": {"episodic-dp/run": run.name},
  }
  job = {
      "apiVersion": "batch/v1",
      "kind": "Job",
      "metadata": metadata,
      "spec": _job_spec(name, run, values),
  }
  if values.processes == 1:
    return [job]
  service = {
      "apiVersion": "v1",
      "kind": "Service",
      "metadata": metadata,
      "spec": {
          "clusterIP": "None",
          # The pods look for one another before they are ready.
          "publishNotReadyAddresses": True,
          "selector": {"batch.kubernetes.io/job-name": name},
          "ports": [{"name": "coordinator", "port": _PORT}],
      },
  }
  return [service, job]


def _job_spec(name: str, run: job_lib.Run, values: Any) -> _Manifest:
  """Describe a pod for each process."""

  def on_exit(action: str, status: int) -> _Manifest:
    codes = {"containerName": "train", "operator": "In", "values": [status]}
    return {"action": action, "onExitCodes": codes}

  drained = {
      "action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]
  }
  return {
      "completionMode": "Indexed",
      "completions": values.processes,
      "parallelism": values.processes,
      "backoffLimit": _RESTARTS * values.processes,
      "podFailurePolicy": {
          # A drained node, and a run that asks to be resumed, are not failures:
          # the pod is created again. An error is a failure.
          "rules": [
              drained, on_exit("Ignore", job_lib.REQUEUE), on_exit("FailJob", 1)
          ]
      },
      "template": {"spec": _pod_spec(name, run, values)},
  }


def _pod_spec(name: str, run: job_lib.Run, values: Any) -> _Manifest:
  gpus = {"nvidia.com/gpu": values.gpus} if values.gpus else {}
  held = {"memory": values.memory, **gpus}
  # Kubernetes reads $(NAME) as a variable, and $$ as one dollar.
  arguments = [word.replace("$", "$$") for word in run.command]
  environment = []
  if values.processes > 1:
    arguments += [
        f"--coordinator={name}-0.{name}:{_PORT}",
        f"--num_processes={values.processes}",
        "--process_id=$(JOB_COMPLETION_INDEX)",
    ]
    if not gpus:
      devices = str(min(values.cpus, job_lib.MOST_DEVICES))
      environment = [{"name": "JAX_NUM_CPU_DEVICES", "value": devices}]
  claim = {"persistentVolumeClaim": {"claimName": values.claim}}
  # NCCL needs more shared memory than the 64 MiB of a container.
  shared = {"emptyDir": {"medium": "Memory"}}
  return {
      "restartPolicy": "Never",
      "terminationGracePeriodSeconds": 120,
      "securityContext": {
          "runAsNonRoot": True,
          "runAsUser": _USER,
          "runAsGroup": _USER,
          "fsGroup": _USER,
          # Otherwise each start would let the group read the key in private/.
          "fsGroupChangePolicy": "OnRootMismatch",
      },
      # No pod needs Kubernetes' interface.
      "automountServiceAccountToken": False,
      "subdomain": name,
      "volumes": [
          {"name": "runs", **claim}, {"name": "shared-memory", **shared}
      ],
      "containers": [{
          "name": "train",
          "image": values.image,
          "args": arguments,
          "env": environment,
          "resources": {
              "requests": {"cpu": values.cpus, **held}, "limits": held
          },
          "securityContext": {"allowPrivilegeEscalation": False},
          "volumeMounts": [
              {"name": "runs", "mountPath": MOUNT},
              {"name": "shared-memory", "mountPath": "/dev/shm"},
          ],
      }],
  }


def launch(job: job_lib.Job, values: Any) -> int:
  """Create the objects; an existing job of the same name is not changed.

  Raises:
    RunError: there is no kubectl.
  """
  if shutil.which("kubectl") is None:
    raise errors.RunError(
        "--target=kubernetes: expected kubectl on this machine"
    )
  return subprocess.run(
      ["kubectl", "create", "-f", "-"],
      input=render(job, values),
      text=True,
      check=False,
  ).returncode

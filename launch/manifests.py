"""The manifests of a run on Kubernetes, as plain values and as YAML.

A pod is a process. The first pod's name, which a headless Service makes an
address, and the index of each are all that they need to find one another. The
pods of a TPU slice are told by GKE.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

import yaml

from episodic_dp.cli import exit_status
from launch import job as job_lib

MOUNT = "/runs"  # Of the claim, in the pods.
_PORT = 8476
_USER = 1000  # Of the container, see Containerfile.
_MOST_DEVICES = 8  # As `backends` takes of a CPU.
_TPU = "cloud.google.com/gke-tpu-"
_Manifest = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """What is asked of Kubernetes.

  Attributes:
    image: the container.
    device: "cpu", "gpu" or "tpu".
    cpus: of each pod.
    memory: of each pod, such as "16Gi".
    gpus: of each pod, or TPU chips.
    claim: the persistent volume claim that is mounted at `MOUNT`, or None.
    namespace: None for that of kubectl's context.
    service_account: None for the namespace's own.
    tpu_accelerator: of GKE's node pool, such as "tpu-v5-lite-podslice".
    tpu_topology: likewise, such as "4x4".
    slices: how many TPU slices; several are a JobSet.
    restarts: how often pods are made again after one was killed.
    grace: seconds between SIGTERM and SIGKILL.
  """

  image: str
  device: str = "cpu"
  cpus: int = 4
  memory: str = "16Gi"
  gpus: int = 1
  claim: str | None = None
  namespace: str | None = None
  service_account: str | None = None
  tpu_accelerator: str | None = None
  tpu_topology: str | None = None
  slices: int = 1
  restarts: int = 3
  grace: float = 120.0


def render(job: job_lib.Job, chosen: Options) -> str:
  """The manifests as YAML, for `kubectl create`."""
  documents = []
  for number, run in enumerate(job.runs):
    name = job.name if len(job.runs) == 1 else f"{job.name}-{number}"
    documents += manifests(name, run, job.processes, chosen)
  return yaml.safe_dump_all(documents, sort_keys=False, width=80)


def manifests(
    name: str, run: job_lib.Run, processes: int, chosen: Options
) -> list[_Manifest]:
  """Those of one run: a JobSet; or a Job, and a Service where it needs one."""
  metadata: _Manifest = {"name": name}
  if chosen.namespace:
    metadata["namespace"] = chosen.namespace
  metadata["labels"] = {"app.kubernetes.io/name": "episodic-dp"}
  if run.name:
    metadata["annotations"] = {"episodic-dp/run": run.name}
  arguments = [
      "train", *run.arguments, *_process_flags(name, processes, chosen)
  ]  # fmt: skip
  if chosen.slices > 1:
    return [_job_set(metadata, arguments, processes, chosen)]
  several = processes > 1
  job = {
      "apiVersion": "batch/v1",
      "kind": "Job",
      "metadata": metadata,
      "spec": _job_spec(
          arguments, processes, chosen, subdomain=name if several else None
      ),
  }
  if not several:
    return [job]
  service = {
      "apiVersion": "v1",
      "kind": "Service",
      "metadata": {k: v for k, v in metadata.items() if k != "annotations"},
      "spec": {
          "clusterIP": "None",
          # The pods look for one another before they are ready.
          "publishNotReadyAddresses": True,
          "selector": {"batch.kubernetes.io/job-name": name},
          "ports": [{"name": "coordinator", "port": _PORT}],
      },
  }
  return [service, job]


def _process_flags(name: str, processes: int, chosen: Options) -> list[str]:
  """Those that tell a process which one it is."""
  if chosen.device == "tpu":
    several = processes > 1 or chosen.slices > 1
    return ["--coordinator=auto"] * several
  if processes == 1:
    return []
  return [
      f"--coordinator={name}-0.{name}:{_PORT}",
      f"--num_processes={processes}",
      "--process_id=$(JOB_COMPLETION_INDEX)",
  ]


def _job_set(
    metadata: _Manifest,
    arguments: list[str],
    processes: int,
    chosen: Options,
) -> _Manifest:
  """A Job for each slice; all of them are made again when one fails."""
  pool = f"{_TPU.partition('/')[0]}/gke-nodepool"
  annotations = metadata.get("annotations", {}) | {
      "alpha.jobset.sigs.k8s.io/exclusive-topology": pool
  }
  template = _job_spec(arguments, processes, chosen, subdomain=None)
  # What is not an error restarts the whole set, not single pods.
  template["backoffLimit"] = 0
  template["podFailurePolicy"]["rules"] = [_error_fails_job()]
  return {
      "apiVersion": "jobset.x-k8s.io/v1alpha2",
      "kind": "JobSet",
      "metadata": metadata | {"annotations": annotations},
      "spec": {
          "network": {
              "enableDNSHostnames": True,
              "publishNotReadyAddresses": True,
          },
          "failurePolicy": {
              "maxRestarts": chosen.restarts,
              "rules": [
                  {
                      "action": "FailJobSet",
                      "onJobFailureReasons": ["PodFailurePolicy"],
                  }
              ],
          },
          "replicatedJobs": [
              {
                  "name": "slice",
                  "replicas": chosen.slices,
                  "template": {"spec": template},
              }
          ],
      },
  }


def _job_spec(
    arguments: list[str],
    processes: int,
    chosen: Options,
    *,
    subdomain: str | None,
) -> _Manifest:
  """A pod for each process."""
  return {
      "completionMode": "Indexed",
      "completions": processes,
      "parallelism": processes,
      "backoffLimit": chosen.restarts * processes,
      "podFailurePolicy": {
          "rules": [
              # Of a drained node, and of a run that asks to be started again:
              # not counted as a failure, the pod is made anew.
              {
                  "action": "Ignore",
                  "onPodConditions": [{"type": "DisruptionTarget"}],
              },
              {
                  "action": "Ignore",
                  "onExitCodes": {
                      "containerName": "train",
                      "operator": "In",
                      "values": [exit_status.REQUEUE],
                  },
              },
              _error_fails_job(),
          ]
      },
      "template": {"spec": _pod_spec(arguments, processes, chosen, subdomain)},
  }


def _error_fails_job() -> _Manifest:
  return {
      "action": "FailJob",
      "onExitCodes": {
          "containerName": "train",
          "operator": "In",
          "values": [exit_status.ERROR],
      },
  }


def _pod_spec(
    arguments: list[str],
    processes: int,
    chosen: Options,
    subdomain: str | None,
) -> _Manifest:
  container: _Manifest = {
      "name": "train",
      "image": chosen.image,
      "args": arguments,
      "resources": _resources(chosen),
      "securityContext": {"allowPrivilegeEscalation": False},
  }
  if chosen.device == "cpu" and processes > 1:
    devices = str(min(chosen.cpus, _MOST_DEVICES))
    container["env"] = [{"name": "JAX_NUM_CPU_DEVICES", "value": devices}]
  volumes: dict[str, Mapping[str, Any]] = {}
  mounts = {}
  if chosen.claim:
    volumes["runs"] = {"persistentVolumeClaim": {"claimName": chosen.claim}}
    mounts["runs"] = MOUNT
  if chosen.device == "gpu":
    # NCCL takes more shared memory than the 64 MiB of a container.
    volumes["shared-memory"] = {"emptyDir": {"medium": "Memory"}}
    mounts["shared-memory"] = "/dev/shm"
  spec: _Manifest = {
      "restartPolicy": "Never",
      "terminationGracePeriodSeconds": max(1, round(chosen.grace)),
      "securityContext": {
          "runAsNonRoot": True,
          "runAsUser": _USER,
          "runAsGroup": _USER,
          "fsGroup": _USER,
          # Or each start would let the group read the key in private/.
          "fsGroupChangePolicy": "OnRootMismatch",
      },
      # Nothing asks Kubernetes for anything.
      "automountServiceAccountToken": False,
  }
  if subdomain:
    spec["subdomain"] = subdomain
  if chosen.service_account:
    spec["serviceAccountName"] = chosen.service_account
  if chosen.device == "tpu":
    spec["nodeSelector"] = {
        f"{_TPU}accelerator": chosen.tpu_accelerator,
        f"{_TPU}topology": chosen.tpu_topology,
    }
  if volumes:
    container["volumeMounts"] = [
        {"name": name, "mountPath": path} for name, path in mounts.items()
    ]
    spec["volumes"] = [{"name": name} | dict(v) for name, v in volumes.items()]
  return spec | {"containers": [container]}


def _resources(chosen: Options) -> _Manifest:
  """What each pod asks for, and is held to in memory and accelerators."""
  device = {"gpu": "nvidia.com/gpu", "tpu": "google.com/tpu"}
  accelerators = {}
  if chosen.device in device:
    accelerators = {device[chosen.device]: chosen.gpus}
  memory = {"memory": chosen.memory}
  return {
      "requests": {"cpu": chosen.cpus} | memory | accelerators,
      "limits": memory | accelerators,
  }

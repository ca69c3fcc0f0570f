"""Settings of a process that can change numbers: versions, devices, flags.

A setting that is not known to be harmless counts. Names that change no number
are listed in full, so that a new setting of XLA or JAX counts until it is
listed.
"""

import json
import os
import pathlib
import platform
import re

import jax
import jaxlib
import numpy as np

from episodic_dp import _version
from episodic_dp import backends
from episodic_dp.output import files

_PROCESSORS = pathlib.Path("/proc/cpuinfo")  # Of Linux.
# Environment variables that begin with one of these names and "_" are settings
# of JAX, of XLA, of libraries that compute for them, or of the loader.
_FAMILIES = re.compile(
    "(JAX|XLA|TF|TSL|PJRT|LIBTPU|TPU|NVIDIA|CUDA|CUDNN|CUBLAS|CUBLASLT|CUFFT"
    "|CUSOLVER|CUSPARSE|NCCL|RCCL|TRITON|HIP|HIPBLASLT|HSA|ROCM|ROCBLAS|MIOPEN"
    "|ONEDNN|DNNL|MKL|OMP|GOMP|KMP|OPENBLAS|BLIS|EIGEN|XNN|YNN|GLOO|NPY|LLVM"
    "|MLIR|LD|GLIBC)_"
)
# Settings of JAX, and variables of the environment in lower case, that change
# no number: logs, checks, caches of compiled programs, and addresses. The
# number and kind of devices are part of the fingerprint themselves.
HARMLESS = frozenset("""
    cloud_tpu_task_id cuda_cache_disable cuda_cache_maxsize cuda_cache_path
    cuda_launch_blocking cuda_visible_devices dnnl_verbose
    jax_array_garbage_collection_guard jax_captured_constants_report_frames
    jax_captured_constants_warn_bytes jax_check_proxy_envs
    jax_check_tracer_leaks jax_compilation_cache_check_contents
    jax_compilation_cache_dir jax_compilation_cache_include_metadata_in_key
    jax_compilation_cache_max_size jax_compiler_detailed_logging_min_ops
    jax_coordinator_address jax_coordinator_bind_address
    jax_cpu_get_global_topology_timeout_minutes
    jax_cpu_get_local_topology_timeout_minutes jax_cuda_visible_devices
    jax_debug_log_modules jax_distributed_debug jax_dump_ir_modes
    jax_dump_ir_to jax_enable_checks jax_enable_compilation_cache
    jax_enable_preemption_service jax_explain_cache_misses
    jax_hlo_source_file_canonicalization_regex
    jax_include_debug_info_in_dumps jax_include_full_tracebacks_in_locations
    jax_local_device_ids jax_log_checkpoint_residuals jax_log_compiles
    jax_logging_level jax_num_cpu_devices jax_num_processes
    jax_pallas_verbose_errors jax_persistent_cache_min_compile_time_secs
    jax_persistent_cache_min_entry_size_bytes jax_platform_name jax_platforms
    jax_pprint_use_color jax_process_id jax_raise_persistent_cache_errors
    jax_rocm_visible_devices jax_source_url_schema jax_thread_guard
    jax_traceback_filtering jax_traceback_in_locations_limit
    jax_tracer_error_num_traceback_frames jax_transfer_guard
    jax_transfer_guard_device_to_device jax_transfer_guard_device_to_host
    jax_transfer_guard_host_to_device mkl_verbose nccl_debug nccl_debug_file
    nccl_debug_subsys nvidia_visible_devices omp_display_env onednn_verbose
    tf_cpp_log_thread_id tf_cpp_max_log_level tf_cpp_max_vlog_level
    tf_cpp_min_log_level tf_cpp_min_vlog_level tf_cpp_vmodule tpu_name
    tpu_process_addresses tpu_process_port tpu_skip_mds_query tpu_visible_chips
    tpu_visible_devices tpu_worker_hostnames tpu_worker_id
""".split())
# Flags of XLA that only write files.
HARMLESS_FLAGS = frozenset("""
    --xla_dump_to --xla_dump_hlo_as_html --xla_dump_hlo_as_proto
    --xla_dump_hlo_as_text --xla_dump_hlo_module_re --xla_dump_hlo_pass_re
    --xla_dump_max_hlo_modules
""".split())


def present() -> dict[str, str]:
  """Return name -> value of each setting of this process."""
  kinds = {f"{d.platform} {d.device_kind}" for d in jax.devices()}
  found = {
      "episodic_dp": _version.__version__,
      "jax": jax.__version__,
      "jaxlib": jaxlib.__version__,
      "numpy": np.__version__,
      "device": ", ".join(sorted(kinds)),
      "devices": str(jax.device_count()),
      "processes": str(jax.process_count()),
      "processor": processor(),
  }
  for name, value in jax.config.values.items():
    if name not in HARMLESS:
      found[name] = str(value)
  # JAX reads its own variables into its settings, which may be set later.
  known = HARMLESS | jax.config.values.keys()
  for name, value in {"XLA_FLAGS": "", **os.environ}.items():
    if _FAMILIES.match(name) and name.lower() not in known:
      found[name] = _with_files(value)
  return found


def _with_files(value: str) -> str:
  """Return a variable's words, with digests of the files that they name.

  XLA_FLAGS may be the name of a file of flags, and flags may name files.
  """
  words = []
  for word in value.split():
    if word.partition("=")[0] in HARMLESS_FLAGS:
      continue
    path = word.rpartition("=")[2]
    if os.path.isfile(path):
      content = pathlib.Path(path).read_bytes()
      word += f" (SHA-256 {files.sha256(content)})"
    words.append(word)
  return " ".join(words)


def processor() -> str:
  """Return a digest of the processor's instructions, which affect rounding.

  Where they are not known, as on macOS, each machine and system is another one.
  """
  names = ("model name", "flags", "Features")
  try:
    described = _PROCESSORS.read_text(encoding="utf-8")
    lines = {x for x in described.splitlines() if x.startswith(names)}
  except OSError:
    lines = set(platform.uname())
  text = json.dumps(sorted(lines), sort_keys=True)
  cores = backends.cores()
  return f"{cores} cores {files.sha256(text.encode())[:12]}"

"""Start `episodic-dp train` on one machine, SLURM, a TPU pod or Kubernetes.

Each target is a module with `define_flags`, a pure function from a job to the
text that is run or applied, and `launch`, which runs it. docs/clusters.md is
the page for users.
"""

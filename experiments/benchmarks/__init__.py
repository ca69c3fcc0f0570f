"""Benchmarks beside their targets: cases of one harness."""

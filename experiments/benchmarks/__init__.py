"""Benchmarks with their targets: cases of one harness."""

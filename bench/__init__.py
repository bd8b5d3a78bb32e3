"""Throughput benchmarks: ``python -m bench``."""

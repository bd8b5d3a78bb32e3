"""Data to try things on: generated, or read from files that you have. Nothing is downloaded."""

from __future__ import annotations

from fastemf.datasets.latency_log import LatencyLog, make_latencies
from fastemf.datasets.measured_matrix import MeasuredMatrix
from fastemf.datasets.netlatency import load_netlatency
from fastemf.datasets.skewed_matrix import SkewedMatrix, make_skewed
from fastemf.datasets.wsdream import load_wsdream
from fastemf.observations.hold_out import Split, split

__all__ = [
    "LatencyLog",
    "MeasuredMatrix",
    "SkewedMatrix",
    "Split",
    "load_netlatency",
    "load_wsdream",
    "make_latencies",
    "make_skewed",
    "split",
]

"""Example data: generated, or read from files. Nothing is downloaded."""

from __future__ import annotations

from fastemf.datasets.generated import LatencyLog, SkewedMatrix, make_latencies, make_skewed
from fastemf.datasets.measured import MeasuredMatrix, load_netlatency, load_wsdream
from fastemf.datasets.places import Places, load_wsdream_places
from fastemf.sources.hold_out import Split, split

__all__ = [
    "LatencyLog", "MeasuredMatrix", "Places", "SkewedMatrix", "Split", "load_netlatency",
    "load_wsdream", "load_wsdream_places", "make_latencies", "make_skewed", "split",
]  # fmt: skip

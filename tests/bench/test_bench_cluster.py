"""The tables of docs/paper_scale.md are computed from the constants on the page."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import fastemf
from bench import cluster as bench_cluster
from bench import paper_scale
from bench.paper_scale import PAGE, half, needed_fraction, read_plan, tables, worth_shipping
from fastemf.solver.half_sweep import SolvedRows

pytestmark = pytest.mark.bench

PLAN = read_plan(PAGE.read_text())


def test_page_has_the_printed_tables(capsys):
    paper_scale.main([])
    printed = capsys.readouterr().out.strip()
    assert printed == tables(PLAN)
    assert printed in PAGE.read_text()
    with pytest.raises(ValueError, match="block of JSON"):
        read_plan("no constants")


def test_stored_and_reported_bytes(tmp_path):
    size, shape = 5000, (3, 2)
    i = np.arange(size, dtype=np.float32)
    R = (i.astype(int) % 3, i.astype(int) % 2, 1 + i)
    stored = fastemf.store.build(R, tmp_path / "store", shape=shape).info["bytes"]
    assert stored / size == pytest.approx(PLAN.stored_bytes_per_observation, rel=0.1)
    solved = SolvedRows.empty(1, 4, np.dtype(np.float32))
    assert solved.stats.nbytes + solved.status.nbytes == PLAN.report_bytes_per_row


def test_half_sweep_by_hand():
    plan = replace(
        PLAN, observations=1e9, machines=2, threads_per_machine=5, link_gigabytes_per_second=1.0,
        seconds_per_half_sweep=0.5, nanoseconds_per_observation={"10": 20},
        microseconds_per_row={"10": 3}, report_bytes_per_row=20,
    )  # fmt: skip
    at = half(plan, 10, solved=1e6, other=1e8)
    assert at.solve == pytest.approx((20 + 3) / 10)
    assert at.driver == pytest.approx(4 + 0.04 + 0.06)  # 40 bytes a row, and 20 of report
    assert at.exchange == pytest.approx(2)  # the half that a machine lacks
    assert at.seconds == pytest.approx(2.3 + 4.1 + 2 + 0.5)


def test_needed_rows():
    # On one of two machines with probability 1/2 per observation.
    assert needed_fraction(3, 2) == pytest.approx(7 / 8)
    assert worth_shipping(2) == pytest.approx(1)
    assert needed_fraction(worth_shipping(20), 20) == pytest.approx(0.5)
    assert worth_shipping(1000) == pytest.approx(1000 * math.log(2), rel=1e-3)


@pytest.mark.compiled
def test_measuring_runs():
    plan = replace(PLAN, nanoseconds_per_observation={"2": 0}, microseconds_per_row={"2": 0})
    found = paper_scale.measure(plan, repeats=1, rows=64, others=50)
    assert found.nanoseconds_per_observation.keys() == found.microseconds_per_row.keys() == {"2"}


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_cluster_benchmark_runs(capsys):
    pytest.importorskip("distributed")
    bench_cluster.main(["--entries", "10000", "--ranks", "3", "--repeats", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == bench_cluster.HEADER
    assert lines[3].split()[1] == "3"

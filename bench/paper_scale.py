"""``python -m bench.paper_scale``: a plan for 10¹⁰ observations on 20 machines.

Computes the tables of docs/paper_scale.md from the constants on that page; ``--measure`` measures
the speed constants on this machine.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parent.parent / "docs" / "paper_scale.md"


@dataclass(frozen=True)
class Plan:
    """The data, the machines and the speed of the code."""

    observations: float
    rows: float
    columns: float
    machines: int
    threads_per_machine: int
    gigabytes_per_machine: float
    link_gigabytes_per_second: float  # assumed: of each machine and of the driver, either way
    factor_bytes: int  # of a coordinate: 4 for float32
    stored_bytes_per_observation: float  # both sides
    report_bytes_per_row: float  # returned beside the factor
    seconds_per_half_sweep: float  # of Dask's messages
    nanoseconds_per_observation: dict[str, float]  # by rank: one half-sweep, one thread
    microseconds_per_row: dict[str, float]

    @property
    def threads(self) -> int:
        """Threads of all machines."""
        return self.machines * self.threads_per_machine


@dataclass(frozen=True)
class Half:
    """Seconds of the steps of one half-sweep."""

    solve: float
    driver: float  # transfers from and to the driver
    exchange: float  # of the other factor between the machines
    messages: float

    @property
    def seconds(self) -> float:
        """Sum of the steps, which do not overlap."""
        return self.solve + self.driver + self.exchange + self.messages


def half(plan: Plan, k: int, solved: float, other: float) -> Half:
    """Return the seconds of a half-sweep that solves `solved` rows given a factor of `other` rows.

    The driver sends the other factor once, a part to each machine, and the machines exchange
    their parts, so that every link carries it once more. The solved rows travel from the driver
    to where their block is, and back with a report.
    """
    work = plan.observations * plan.nanoseconds_per_observation[str(k)] * 1e-9
    work += solved * plan.microseconds_per_row[str(k)] * 1e-6
    link = plan.link_gigabytes_per_second * 1e9
    row = k * plan.factor_bytes
    return Half(
        solve=work / plan.threads,
        driver=(other * row + solved * (2 * row + plan.report_bytes_per_row)) / link,
        exchange=other * row * (plan.machines - 1) / plan.machines / link,
        messages=plan.seconds_per_half_sweep,
    )


def sweep(plan: Plan, k: int) -> Half:
    """Return the times of a whole sweep."""
    halves = half(plan, k, plan.columns, plan.rows), half(plan, k, plan.rows, plan.columns)
    return Half(*(sum(step) for step in zip(*map(astuple, halves), strict=True)))


def needed_fraction(observations_per_row: float, machines: float) -> float:
    """Return the fraction of the rows of a factor that a machine needs, for evenly spread cells.

    A machine with 1/M of the columns does not need a row with d observations with probability
    (1 − 1/M)^d.
    """
    return 1 - (1 - 1 / machines) ** observations_per_row


def worth_shipping(machines: float) -> float:
    """Return the observations per row below which a machine needs less than half of the factor."""
    return float(np.log(2) / -np.log1p(-1 / machines))


def tables(plan: Plan) -> str:
    """Return the tables of the page."""
    ranks = [int(k) for k in plan.nanoseconds_per_observation]
    k = ranks[len(ranks) // 2]
    stored = plan.observations * plan.stored_bytes_per_observation
    room = plan.gigabytes_per_machine * 1e9 - stored / plan.machines
    lines = [
        f"Store on disk: {_bytes(stored)}; observations in each machine's memory: "
        f"{_bytes(stored / plan.machines)}.",
        "",
        "| k | half-sweep | factor sent to all | solves | driver | exchange | all |",
        "|---|---|---|---|---|---|---|",
    ]
    for rank in ranks:
        for name, solved, other in (
            ("columns given rows", plan.columns, plan.rows),
            ("rows given columns", plan.rows, plan.columns),
        ):
            at = half(plan, rank, solved, other)
            sent = _bytes(other * rank * plan.factor_bytes)
            lines.append(f"| {rank} | {name} | {sent} | {_steps(at)} |")
    lines += [
        "",
        f"A sweep at k = {k} by the number of rows:",
        "",
        "| rows | per row | solves | driver | exchange | all | two copies of the factor | needed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for rows in (1e6, 1e7, 1e8, 1e9):
        varied = replace(plan, rows=rows)
        each = plan.observations / rows
        copies = 2 * rows * k * plan.factor_bytes
        fits = "" if copies <= room else ", too large"
        lines.append(
            f"| {rows:.0e} | {each:g} | {_steps(sweep(varied, k))} | {_bytes(copies)}{fits} "
            f"| {needed_fraction(each, plan.machines):.0%} |"
        )
    lines += [
        "",
        f"And by the number of machines, {plan.rows:.0e} rows:",
        "",
        "| machines | solves | driver | exchange | all | needed | half is needed at |",
        "|---|---|---|---|---|---|---|",
    ]
    for machines in (5, 20, 80, 320, 1280):
        varied = replace(plan, machines=machines)
        fraction = needed_fraction(plan.observations / plan.rows, machines)
        lines.append(
            f"| {machines} | {_steps(sweep(varied, k))} | {fraction:.0%} "
            f"| {worth_shipping(machines):.0f} per row |"
        )
    return "\n".join(lines)


def _steps(at: Half) -> str:
    return f"{at.solve:.1f} s | {at.driver:.1f} s | {at.exchange:.1f} s | {at.seconds:.1f} s"


def read_plan(page: str) -> Plan:
    """Read the constants of a page from its fenced block of JSON."""
    found = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    if found is None:
        raise ValueError("the page must have its constants in a block of JSON")
    return Plan(**json.loads(found[1]))


def measure(plan: Plan, repeats: int = 3, rows: int = 20_000, others: int = 1_000_000) -> Plan:
    """Return the plan with times measured on this machine, for rows of two lengths.

    The other factor is larger than the caches. Rows start from the solution for a factor that
    differs by 5 %, as in a later sweep.
    """
    from fastemf.kernels.vector_width import pad_columns
    from fastemf.solver.half_sweep import Regressors, RowArrays, RowProblem, solve_block
    from fastemf.sources.source import Side

    rng = np.random.default_rng(0)
    per_observation, per_row = {}, {}
    for k in (int(k) for k in plan.nanoseconds_per_observation):
        other = rng.random((others, k), np.float32)
        moved = pad_columns(
            (other * (1 + 0.05 * rng.standard_normal(other.shape))).astype(np.float32)
        )
        seconds = {}
        for length in (8, 128):
            n = rows * 8 // length
            indptr = np.arange(n + 1, dtype=np.int64) * length
            indices = rng.integers(0, others, n * length).astype(np.int32)
            values = (other[indices].mean(axis=1) + rng.chisquare(3, n * length)).astype(np.float32)
            mass = np.full(n, float(length))
            side = Side(indptr, indices, values, values[:0], mass)
            ridge, problem = np.column_stack([mass, mass]), RowProblem(0.1, k)
            start = np.zeros((n, k), np.float32)
            given = Regressors.of(moved)
            start = solve_block(side, *given, *RowArrays(start, ridge), problem, 1).factor
            taken = []
            wide = pad_columns(other)
            for _ in range(repeats):
                began = time.perf_counter()
                solve_block(side, wide, *given[1:], *RowArrays(start, ridge), problem, 1)
                taken.append(time.perf_counter() - began)
            seconds[length] = min(taken) / n
        slope = (seconds[128] - seconds[8]) / 120
        per_observation[str(k)] = float(f"{slope * 1e9:.3g}")
        per_row[str(k)] = float(f"{(seconds[8] - 8 * slope) * 1e6:.3g}")
    return replace(plan, nanoseconds_per_observation=per_observation, microseconds_per_row=per_row)


def _bytes(size: float) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1e3:.1f} kB"


def main(argv: list[str] | None = None) -> None:
    """Print the tables, or measured constants and their tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.paper_scale", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure the constants")
    options = parser.parse_args(argv)
    plan = read_plan(PAGE.read_text())
    if options.measure:
        plan = measure(plan)
        print(json.dumps(asdict(plan), indent=1), end="\n\n")
    print(tables(plan))


if __name__ == "__main__":
    main()

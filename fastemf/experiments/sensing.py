"""Linear measurements: how many are needed for recovery, and how fast it is."""

from __future__ import annotations

from fastemf import plot
from fastemf.experiments import convergence_rate, phase_diagram
from fastemf.experiments.report import Report, panels
from fastemf.support.validation import check_integer, check_rank

__all__ = ["run"]


def run(*, size: int = 20, rank: int = 2, repeats: int = 10, progress: bool = False) -> Report:
    """Measure phase diagram and convergence rate of square problems."""
    check_integer(size, "size", minimum=1)
    check_rank(rank, (size, size), "rank")
    check_integer(repeats, "repeats", minimum=1)
    shares = phase_diagram.run(size, rank, repeats, progress=progress)
    factors = convergence_rate.run(size, rank, repeats, progress=progress)
    report = Report(
        "sensing",
        "Recovery from linear measurements",
        [
            f"Noiseless Gaussian measurements of {size} × {size} matrices of rank {rank}, "
            f"{repeats} random problems for every number, the paper's Algorithm 1 to the letter. "
            "Degrees of freedom: k (m + n − k).",
        ],
        rows=[*shares.rows(), *factors.rows()],
    )
    figure, (ax,) = panels(1, height=4.4)
    plot.phase_diagram(shares.values, shares.ratios, shares.omegas, ax=ax)
    ax.set_title(shares.title, fontsize=11)
    report.figure("phase_diagram", figure, f"{shares.title.capitalize()}.")
    figure, (ax,) = panels(1)
    curves = {
        f"{ratio:g} measurements per degree of freedom": row
        for ratio, row in zip(factors.ratios, factors.values, strict=True)
    }
    plot.against_level(curves, factors.omegas, label="error factor per sweep (no unit)", ax=ax)
    ax.set_title(factors.title, fontsize=11)
    report.figure("convergence_rate", figure, f"{factors.title.capitalize()}.")
    for grid in (shares, factors):
        report.table(grid.title, grid.table())
    return report

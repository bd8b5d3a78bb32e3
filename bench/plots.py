"""Plots of a result file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bench.problems import label
from bench.quality import WITHIN
from bench.runner import Row
from bench.targets import OURS, ROOFLINE

# Okabe and Ito's palette for colour-blind readers; markers differ as well.
STYLE = {
    OURS: ("#0072B2", "o"),
    "fastemf exact": ("#56B4E9", "P"),
    "cmfrec Cholesky": ("#D55E00", "s"),
    "cmfrec CG": ("#E69F00", "^"),
    "implicit Cholesky (other loss)": ("#009E73", "D"),
    "implicit CG (other loss)": ("#CC79A7", "v"),
    "NumPy loop": ("#000000", "x"),
}
TYPES = {"float64": "#0072B2", "float32": "#E69F00"}
WIDTH = 8.0  # inches, at 100 dots each: the width of a README


def draw(results: list[Row], folder: Path) -> list[Path]:
    """Write a PNG file for every plot that the results have data for; return their paths."""
    plots: dict[str, Callable[[list[Row]], Figure | None]] = {
        "time_to_quality": time_to_quality,
        "sweeps_by_rank": sweeps_by_rank,
        "throughput_by_entries": throughput_by_entries,
        "throughput_by_rank": throughput_by_rank,
        "throughput_by_threads": throughput_by_threads,
        "roofline": roofline,
    }
    folder.mkdir(parents=True, exist_ok=True)
    usable = [row for row in results if row["error"] is None]
    paths = []
    for name, plot in plots.items():
        figure = plot(usable)
        if figure is not None:
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=100)
            paths.append(path)
    return paths


def time_to_quality(results: list[Row]) -> Figure | None:
    """Draw the objective relative to the best of all competitors against wall-clock time."""
    rows = [row for row in results if row["section"] == "quality" and row["curve"]]
    if not rows:
        return None
    ranks = sorted({row["k"] for row in rows})
    figure, panels = _panels(len(ranks))
    for axes, k in zip(panels, ranks, strict=True):
        here = [row for row in rows if row["k"] == k]
        best = here[0]["target"] / (1 + WITHIN)
        floor = WITHIN / 20
        for row in here:
            colour, marker = STYLE[row["competitor"]]
            # The best point itself would be at log 0.
            points = [(s, max(F / best - 1, floor / 10)) for _, s, F in row["curve"]]
            axes.plot(
                *zip(*points, strict=True), color=colour, marker=marker, ms=4, lw=1.8,
                label=f"{row['competitor']}: {_reached(row)}",
            )  # fmt: skip
            if row["seconds"] is not None:
                axes.plot(
                    row["seconds"], WITHIN, marker=marker, ms=11, mfc="none", mec=colour, mew=2,
                    zorder=3,
                )  # fmt: skip
        axes.axhline(WITHIN, color="0.4", lw=1, ls="--")
        axes.set(xscale="log", yscale="log", ylim=(floor, None))
        axes.set_title(f"k = {k}", loc="left", fontsize=11)
        axes.set_xlabel("seconds since the call, set-up included")
        axes.legend(frameon=False, loc="upper right", fontsize=9)
        _plain_numbers(axes.xaxis)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:g} %"))
    panels[0].set_ylabel("objective above the best")
    _title(figure, f"Time to within 0.1 % of the best objective, {_setting(rows[0])}")
    return figure


def sweeps_by_rank(results: list[Row]) -> Figure | None:
    """Draw the seconds of one sweep against the rank, for all competitors on the main problem."""
    sweeps = [row for row in results if row["section"] == "sweeps" and row["competitor"] in STYLE]
    if not sweeps:
        return None
    threads = max(row["threads"] for row in sweeps)
    rows = [r for r in sweeps if r["problem"] == sweeps[0]["problem"] and r["threads"] == threads]
    types = sorted({row["dtype"] for row in rows}, reverse=True)
    figure, panels = _panels(len(types))
    for axes, dtype in zip(panels, types, strict=True):
        for name, (colour, marker) in STYLE.items():
            points = sorted(
                (row["k"], row["seconds"])
                for row in rows
                if row["competitor"] == name and row["dtype"] == dtype
            )
            if points:
                axes.plot(
                    *zip(*points, strict=True), color=colour, marker=marker, ms=6, lw=1.8,
                    label=name,
                )  # fmt: skip
        axes.set(xscale="log", yscale="log")
        axes.set_title(dtype, loc="left", fontsize=11)
        _rank_axis(axes, sorted({row["k"] for row in rows}))
        _plain_numbers(axes.yaxis)
    panels[0].set_ylabel("seconds per sweep")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
    )
    _title(figure, f"One sweep, {_setting(rows[0], dtype=False)}")
    return figure


def throughput_by_entries(results: list[Row]) -> Figure | None:
    """Draw million entries per second against the number of entries."""
    rows = [row for row in results if row["section"] == "growth" and row["what"] == "entries"]
    if not rows:
        return None
    figure, axes, rates = _throughput(rows, [row["entries"] for row in rows])
    axes.set(ylim=(0, 1.25 * max(rates)), xlabel="observed entries")
    axes.set_xticks([row["entries"] for row in rows], [row["problem"] for row in rows])
    axes.xaxis.set_minor_locator(NullLocator())
    setting = f"{rows[0]['dtype']}, k = {rows[0]['k']}, {_threads(rows[0])}"
    _title(figure, f"Throughput of a sweep against size: {setting}")
    return figure


def throughput_by_rank(results: list[Row]) -> Figure | None:
    """Draw million entries per second against the rank."""
    rows = [row for row in results if row["section"] == "growth" and row["what"] == "rank"]
    if not rows:
        return None
    ranks = [row["k"] for row in rows]
    figure, axes, rates = _throughput(rows, ranks)
    axes.set(yscale="log", ylim=(min(rates) / 1.6, max(rates) * 1.6))
    _rank_axis(axes, ranks)
    _plain_numbers(axes.yaxis)
    _title(figure, f"Throughput of a sweep against rank: {_setting(rows[0])}")
    return figure


def _throughput(rows: list[Row], at: list[int]) -> tuple[Figure, Axes, list[float]]:
    """Draw one labelled curve of the rates on a logarithmic x axis."""
    figure, (axes,) = _panels(1)
    rates = [_rate(row) for row in rows]
    axes.plot(at, rates, color=TYPES[rows[0]["dtype"]], marker="o", lw=1.8)
    for x, rate in zip(at, rates, strict=True):
        axes.annotate(f"{rate:.3g}", (x, rate), (0, 8), textcoords="offset points", ha="center")
    axes.set(xscale="log", ylabel="million entries per second")
    return figure, axes, rates


def throughput_by_threads(results: list[Row]) -> Figure | None:
    """Draw million entries per second against threads, with lines of perfect scaling."""
    rows = [row for row in results if row["section"] == "threads"]
    if not rows:
        return None
    figure, (axes,) = _panels(1)
    counts = sorted({row["threads"] for row in rows})
    for dtype, colour in TYPES.items():
        points = [(row["threads"], _rate(row)) for row in rows if row["dtype"] == dtype]
        if not points:
            continue
        one, last = points[0][1], points[-1]
        axes.plot(
            *zip(*points, strict=True), color=colour, marker="o", lw=1.8,
            label=f"{dtype}: ×{last[1] / one:.2f} with {last[0]}",
        )  # fmt: skip
        axes.plot(counts, [one * count for count in counts], color=colour, lw=1, ls=":")
    axes.plot([], [], color="0.4", lw=1, ls=":", label="perfect scaling")
    axes.legend(frameon=False, loc="upper left")
    axes.set(ylim=(0, None), xlabel="threads", ylabel="million entries per second")
    axes.set_xticks(counts)
    _title(figure, f"Throughput of a sweep against threads, k = {rows[0]['k']}")
    return figure


def roofline(results: list[Row]) -> Figure | None:
    """Draw the fraction of one thread's matrix-product rate, by rank and type, with the targets."""
    rows = [
        row
        for row in results
        if row["section"] == "sweeps" and row["threads"] == 1 and row["competitor"] == OURS
    ]
    rows = [row for row in rows if row["problem"] == rows[0]["problem"] and "roofline" in row]
    if not rows:
        return None
    figure, (axes,) = _panels(1)
    ranks = sorted({row["k"] for row in rows})
    for row in rows:
        shift = 0.2 if row["dtype"] == "float32" else -0.2
        at, fraction = ranks.index(row["k"]) + shift, row["roofline"]
        first = row["k"] == ranks[0]
        axes.bar(
            at, fraction, 0.36, color=TYPES[row["dtype"]], label=row["dtype"] if first else None
        )
        axes.annotate(
            f"{fraction:.2f}", (at, 0), (0, 6), textcoords="offset points", ha="center",
            bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none"},
        )  # fmt: skip
        target = ROOFLINE.get((row["dtype"], row["k"]))
        if target is not None:
            axes.plot([at - 0.18, at + 0.18], [target, target], color="black", lw=2)
    axes.plot([], [], color="black", lw=2, label="target")
    axes.legend(frameon=False, loc="upper left")
    axes.set_xticks(range(len(ranks)), [f"k = {k}" for k in ranks])
    axes.set_ylabel("fraction of the matrix product's rate")
    axes.grid(visible=False, axis="x")
    _title(figure, f"Useful work of a sweep: {_setting(rows[0], dtype=False)}")
    return figure


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
    grid = figure.subplots(1, count, sharey=True, squeeze=False)
    panels: list[Axes] = list(grid[0])
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9", lw=0.8)
        axes.set_axisbelow(True)
    return figure, panels


def _title(figure: Figure, text: str) -> None:
    figure.suptitle(text, x=0.01, ha="left", fontsize=12)


def _rank_axis(axes: Axes, ranks: list[int]) -> None:
    axes.set_xticks(ranks, [str(k) for k in ranks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("rank k")


def _plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis with 1, 2, 5, 10, … instead of powers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _reached(row: Row) -> str:
    if row["seconds"] is None:
        return f"not in {row['spent']:.3g} s"
    return f"{row['seconds']:.3g} s"


def _rate(row: Row) -> float:
    return float(row["entries"] / row["seconds"] / 1e6)


def _threads(row: Row) -> str:
    count = {1: "one thread", 2: "two threads"}
    return count.get(row["threads"], f"{row['threads']} threads")


def _setting(row: Row, dtype: bool = True) -> str:
    two_digits = float(f"{row['entries']:.2g}")
    parts = [f"{label(two_digits)} entries", row["dtype"], _threads(row)]
    return ", ".join(parts if dtype else [parts[0], parts[2]])

"""Response times of WS-DREAM data set 1 by the protocol of publications on quality of service.

A given proportion of the matrix is observed and all other known cells are predicted, in several
rounds. Scores are the mean absolute error (MAE), the same relative to the mean of the values
(NMAE), the root mean square error (RMSE), and the median (MRE) and the 90 % quantile (NPRE) of the
relative error.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastemf.datasets import MeasuredMatrix, load_wsdream, load_wsdream_places, split
from fastemf.experiments.report import Report, panels
from fastemf.levels import complete_levels
from fastemf.metrics import relative_errors
from fastemf.quantiles import complete_quantiles
from fastemf.support.arrays import Floats
from fastemf.support.validation import check_integer

DENSITIES = (0.05, 0.1, 0.15, 0.2)
SAMPLED, UNIFORM = 7, 1  # bits of the source of fragments, see `fastemf.experiments.measured`
SCORES = ("MAE", "NMAE", "RMSE", "MRE", "NPRE")
PLAIN, LOCATED = "fastemf", "fastemf, locations"


class Published(NamedTuple):
    """Published results: MAE and RMSE by density, and their source."""

    method: str
    uses_locations: bool
    scores: dict[float, tuple[float, float]]
    source: str


WSDREAM = "results of the repository icsme2020/WS-DREAM, 20 rounds"
QOS_LIBRARY = "results of the repository Marvin-wen/QoS-Prediction-Algorithm-library"
PUBLISHED = (
    Published("UIPCC", False, {0.05: (0.625, 1.388), 0.1: (0.582, 1.330)}, WSDREAM),
    Published("PMF", False, {0.05: (0.569, 1.537), 0.1: (0.487, 1.316)}, WSDREAM),
    Published("NMF", False, {0.05: (0.546, 1.473), 0.1: (0.478, 1.282)}, WSDREAM),
    Published("CloudPred", True, {0.05: (0.544, 1.328), 0.1: (0.478, 1.224)}, WSDREAM),
    Published("LN-LFM", False, {0.05: (0.560, 1.307), 0.1: (0.501, 1.228)}, WSDREAM),
    Published("NeuMF", False, {0.05: (0.556, 1.421), 0.1: (0.500, 1.345)}, QOS_LIBRARY),
    Published("NDMF", True, {0.05: (0.488, 1.350), 0.1: (0.430, 1.235)}, QOS_LIBRARY),
    Published(
        "LDCF", True, {0.05: (0.405, 1.310), 0.1: (0.380, 1.270)},
        "results of the repository yinchunhui-ahu/Location-aware_Deep_Collaborative_Filtering",
    ),
    Published("ResNet", True, {0.05: (0.365, 1.323), 0.1: (0.320, 1.207)}, QOS_LIBRARY),
)  # fmt: skip


def run(
    data: str | os.PathLike[str], *, places: str | os.PathLike[str] | None = None,
    densities: Sequence[float] = DENSITIES, repeats: int = 10, rank: int = 10,
    progress: bool = False,
) -> Report:  # fmt: skip
    """Compare fits with published results.

    Parameters
    ----------
    data
        As in `fastemf.datasets.load_wsdream`.
    places
        Locations of users and services, as in `fastemf.datasets.load_wsdream_places`.
    densities
        Proportions of the matrix to fit; those that leave nothing to predict are left out.
    repeats
        Rounds, each with other cells.
    rank
        Rank of the fits.
    progress
        Show a progress bar on standard error.
    """
    from tqdm.auto import tqdm

    check_integer(repeats, "repeats", minimum=1)
    check_integer(rank, "rank", minimum=1)
    measured = load_wsdream(data)
    features = None if places is None else load_wsdream_places(places)
    R = _known_cells(measured)
    sizes = {density: round(density * R.shape[0] * R.shape[1]) for density in densities}
    sizes = {density: size for density, size in sizes.items() if size < R.nnz}
    if not sizes:
        raise ValueError(
            f"densities must be below the proportion of known cells, {R.nnz / np.prod(R.shape):.3f}"
            f", got {list(densities)}"
        )
    methods: dict[str, dict[str, Any]] = {PLAIN: {}}
    if features is not None:
        methods[LOCATED] = {"row_features": features.users, "col_features": features.services}
    report = _describe(measured, R, sizes)
    total = len(sizes) * repeats * len(methods)
    with tqdm(total=total, unit="fit", disable=not progress) as bar:
        for density, size in sizes.items():
            for repeat in range(repeats):
                train, test = split(R, size, random_state=repeat)
                for method, side in methods.items():
                    scores = _evaluate(train, test, rank, side, progress)
                    about = {"density": density, "round": repeat, "method": method}
                    report.rows.append(about | scores)
                    bar.update()
    _show(report, list(sizes), list(methods))
    return report


def _known_cells(measured: MeasuredMatrix) -> Any:
    """Return the known cells; of fragments, without the dense block that biases statistics."""
    R = measured.R
    if measured.source is None:
        return R
    kept = (measured.source & SAMPLED) > 0
    return sp.coo_array((R.data[kept], (R.row[kept], R.col[kept])), shape=R.shape)


def _evaluate(
    train: Any, test: Any, rank: int, side: dict[str, Any], progress: bool
) -> dict[str, float]:
    """Fit medians and means, and score their predictions: RMSE of the means, else medians."""
    cells = test.row, test.col
    settings = {"progress": progress, **side}
    medians = complete_quantiles(train, 0.5, rank, **settings).predict(*cells)[:, 0]
    means = complete_levels(train, (0.5, 0.9), rank, boost=True, intercepts=True, **settings)
    return compute_scores(test.data, medians, means.predict(*cells)[:, 0])


def compute_scores(values: Floats, medians: Floats, means: Floats) -> dict[str, float]:
    """Compute the scores of predicted medians and, for the RMSE, of predicted means."""
    error = float(np.abs(values - medians).mean())
    relative = relative_errors(values, medians).values
    return {
        "MAE": error,
        "NMAE": error / float(np.mean(values)),
        "RMSE": float(np.sqrt(np.mean((values - means) ** 2))),
        "MRE": float(np.median(relative)),
        "NPRE": float(np.quantile(relative, 0.9)),
    }


def _describe(measured: MeasuredMatrix, R: Any, sizes: dict[float, int]) -> Report:
    m, n = R.shape
    known = f"{R.nnz:,} of {m * n:,} cells ({R.nnz / (m * n):.1%})"
    what = (
        f"WS-DREAM data set 1, {m} users × {n} services, {known} of which are known"
        if measured.source is None
        else f"Recovered fragments of WS-DREAM data set 1 ({m} users × {n} services), not the full "
        f"matrix: {known} are known, unevenly by user"
    )
    sources = dict.fromkeys(one.source for one in PUBLISHED)
    return Report(
        "leaderboard",
        "Response times of web services: comparison with published results",
        [
            f"{what}. In each round, {', '.join(f'{density:.0%}' for density in sizes)} of the "
            "matrix are observed at random, and all other known cells are predicted. Failed calls "
            "are left out of both, as in the publications.",
            "MAE, NMAE, MRE and NPRE are those of predicted medians, RMSE is that of predicted "
            "means, as each prediction minimizes its own loss. Published methods minimize one loss "
            "for both.",
            "Published figures were computed on the full matrix, with other random cells. Several "
            "of the methods chose their number of epochs on the test cells, which favours them. "
            "They are close, not exact, comparisons. Sources: " + "; ".join(sources) + ".",
        ],
    )


def _show(report: Report, densities: list[float], methods: list[str]) -> None:
    """Add a table of all scores, tables of MAE and RMSE beside published ones, and a figure."""
    lines = []
    for density in densities:
        for method in methods:
            found = _scores_of(report, density, method)
            texts = {name: _mean_and_deviation(found[name]) for name in SCORES}
            lines.append({"observed": f"{density:.0%}", "method": method, **texts})
    report.table("Mean and standard deviation over rounds", lines)
    shared = [density for density in densities if density in PUBLISHED[0].scores]
    for at, name in enumerate(("MAE", "RMSE")):
        own = [
            (method, method == LOCATED, {
                density: float(np.mean(_scores_of(report, density, method)[name]))
                for density in shared
            })
            for method in methods
        ]  # fmt: skip
        others = [
            (one.method, one.uses_locations, {key: pair[at] for key, pair in one.scores.items()})
            for one in PUBLISHED
        ]
        if shared:
            _compare(report, name, shared, [*own, *others])


def _compare(
    report: Report, name: str, densities: list[float],
    results: list[tuple[str, bool, dict[float, float]]],
) -> None:  # fmt: skip
    """Add the table and the figure of one score, the best method first."""
    results = sorted(results, key=lambda result: result[2][densities[0]])
    report.table(
        f"{name} in seconds, beside published results",
        [
            {"method": method, "uses locations": "yes" if located else "no"}
            | {f"{density:.0%} observed": scores[density] for density in densities}
            for method, located, scores in results
        ],
    )
    figure, axes = panels(len(densities), height=3.6)
    for ax, density in zip(axes, densities, strict=True):
        bars = [(method, scores[density]) for method, _, scores in results][::-1]
        colors = ["#0072b2" if method in (PLAIN, LOCATED) else "#a3a9af" for method, _ in bars]
        ax.barh([method for method, _ in bars], [score for _, score in bars], color=colors)
        ax.set_title(f"{density:.0%} of the cells observed", fontsize=11)
        ax.set_xlabel(f"{name} (s)")
    report.figure(name.lower(), figure, f"{name} of held-out response times; lower is better.")


def _scores_of(report: Report, density: float, method: str) -> dict[str, list[float]]:
    rows = [
        row for row in report.rows if (row["density"], row["method"]) == (density, method)
    ]  # fmt: skip
    return {name: [row[name] for row in rows] for name in SCORES}


def _mean_and_deviation(values: list[float]) -> str:
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"

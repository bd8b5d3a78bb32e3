"""Cells to fit and cells to judge by, of the real data sets where FASTEMF_DATA says they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bench.problems import real_file
from fastemf.datasets import split


class Cells(NamedTuple):
    """Positions and values of cells, one line each; a cell may occur on several lines."""

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    values: NDArray[np.float64]

    def where(self, chosen: NDArray[np.bool_]) -> Cells:
        """Return the lines of a mask."""
        return Cells(self.rows[chosen], self.cols[chosen], self.values[chosen])


@dataclass(frozen=True, eq=False)  # hashed by identity: arrays have no hash
class Training:
    """What a method may see."""

    cells: Cells
    shape: tuple[int, int]
    mirrored: bool = False  # rows and columns are the same things: (i, j) and (j, i) are twins

    def folds(self, number: int, seed: int) -> NDArray[np.int64]:
        """Draw a fold for each line, with repeated and mirrored cells in the same one."""
        rows, cols, _ = self.cells
        if self.mirrored:
            rows, cols = np.minimum(rows, cols), np.maximum(rows, cols)
        _, of_cell = np.unique(rows * self.shape[1] + cols, return_inverse=True)
        drawn = np.random.default_rng(seed).permutation(int(of_cell.max()) + 1) % number
        return np.asarray(drawn[of_cell], dtype=np.int64)

    def part(self, chosen: NDArray[np.bool_]) -> Training:
        """Return the lines of a mask, in the same matrix."""
        return Training(self.cells.where(chosen), self.shape, self.mirrored)


class Split(NamedTuple):
    """Cells to fit, and cells to judge by: rows and columns nobody has seen are among these."""

    train: Training
    test: Cells


def divide(
    cells: Cells, shape: tuple[int, int], fitted: NDArray[np.bool_], *, mirrored: bool = False
) -> Split:
    """Split lines by a mask of those to fit."""
    return Split(Training(cells.where(fitted), shape, mirrored), cells.where(~fitted))


def wsdream_5(seed: int) -> Split:
    """Return the uniform 5 % sample, judged by the other fragments: the same for every seed."""
    cells, shape, source = _wsdream()
    return divide(cells, shape, source & 1 > 0)


def wsdream_10(seed: int) -> Split:
    """Draw 10 % of the matrix from the fragments, judged by the rest of them."""
    cells, shape, _ = _wsdream()
    fitted = np.zeros(cells.values.size, bool)
    fitted[np.random.default_rng(seed).permutation(fitted.size)[:197_468]] = True
    return divide(cells, shape, fitted)


def planetlab_10(seed: int) -> Split:
    """Draw 10 % of the unordered pairs of nodes, both directions of each."""
    with np.load(real_file("netlatency_planetlab.npz")) as file:
        times = sp.coo_array(file["rtt_ms"][0])  # without the diagonal, which is 0
    train, test = split(times, 0.1, by="pair", random_state=seed)
    fitted = Training(_cells(*train.coords, train.data), train.shape, mirrored=True)
    return Split(fitted, _cells(*test.coords, test.data))


def kuairand(seed: int) -> Split:
    """Draw 80 % of the lines that were watched at all; most videos have a single one."""
    with np.load(real_file("kuairand_playtime.npz")) as file:
        lines = _cells(file["row"], file["col"], file["val"])
    shape = (int(lines.rows.max()) + 1, int(lines.cols.max()) + 1)
    lines = lines.where(lines.values > 0)
    order = np.random.default_rng(seed).permutation(lines.values.size)
    fitted = np.zeros(order.size, bool)
    fitted[order[: int(0.8 * order.size)]] = True
    return divide(lines, shape, fitted)


def _wsdream() -> tuple[Cells, tuple[int, int], NDArray[Any]]:
    with np.load(real_file("wsdream1_rt_union.npz")) as file:
        kept = file["src"] & 7 > 0  # bit 8 is a dense block, which is no sample of the matrix
        cells = _cells(file["row"][kept], file["col"][kept], file["val"][kept])
        return cells, (int(file["shape"][0]), int(file["shape"][1])), file["src"][kept]


def _cells(rows: Any, cols: Any, values: Any) -> Cells:
    return Cells(rows.astype(np.int64), cols.astype(np.int64), values.astype(np.float64))


REAL: dict[str, Callable[[int], Split]] = {
    "wsdream5": wsdream_5,
    "wsdream10": wsdream_10,
    "planetlab": planetlab_10,
    "kuairand": kuairand,
}

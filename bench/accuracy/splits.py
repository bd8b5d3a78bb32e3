"""Training and test cells of the real data sets in the folder FASTEMF_DATA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bench.problems import real_file
from fastemf.datasets import split

NEW = 0.2  # proportion of the rows or columns that are held out whole

Features = dict[str, NDArray[Any]]
Make = Callable[[int], "Split"]


class Cells(NamedTuple):
    """Positions and values of observations; a cell may be observed several times."""

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    values: NDArray[np.float64]

    def where(self, chosen: NDArray[np.bool_]) -> Cells:
        """Return the observations selected by a mask."""
        return Cells(self.rows[chosen], self.cols[chosen], self.values[chosen])


@dataclass(frozen=True, eq=False)  # hashed by identity: arrays have no hash
class Training:
    """The data a method is fitted to."""

    cells: Cells
    shape: tuple[int, int]
    mirrored: bool = False  # rows and columns are the same things, so (i, j) resembles (j, i)
    features: Features = field(default_factory=dict)  # of the observations
    row_features: Features = field(default_factory=dict)  # of all rows of the matrix
    col_features: Features = field(default_factory=dict)

    @property
    def side(self) -> dict[str, Features]:
        """Return the features by the name of their parameter, if there are any."""
        names = ("features", "row_features", "col_features")
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    def folds(self, number: int, seed: int) -> NDArray[np.int64]:
        """Draw a fold for each observation; repeated and mirrored cells share one."""
        rows, cols, _ = self.cells
        if self.mirrored:
            rows, cols = np.minimum(rows, cols), np.maximum(rows, cols)
        _, of_cell = np.unique(rows * self.shape[1] + cols, return_inverse=True)
        drawn = np.random.default_rng(seed).permutation(int(of_cell.max()) + 1) % number
        return np.asarray(drawn[of_cell], dtype=np.int64)

    def part(self, chosen: NDArray[np.bool_]) -> Training:
        """Return the observations selected by a mask, of the same matrix."""
        features = {name: values[chosen] for name, values in self.features.items()}
        return replace(self, cells=self.cells.where(chosen), features=features)


class Split(NamedTuple):
    """Training and test cells; the latter include rows and columns without training cells."""

    train: Training
    test: Cells
    features: Features = {}  # noqa: RUF012  # of the test cells


def open_splits(sets: dict[str, Make], seeds: list[int]) -> Iterator[tuple[str, int, Split]]:
    """Yield name, seed and split of every data set; report and skip sets that are absent."""
    for name, make in sets.items():
        for seed in seeds:
            try:
                cells = make(seed)
            except FileNotFoundError as error:
                print(f"{name}: skipped, {error}")
                break
            yield name, seed, cells


def divide(
    cells: Cells, shape: tuple[int, int], fitted: NDArray[np.bool_], *, mirrored: bool = False
) -> Split:
    """Split observations by a mask of the training cells."""
    return Split(Training(cells.where(fitted), shape, mirrored), cells.where(~fitted))


def hold_out(make: Make, axis: int) -> Make:
    """Hold out a fifth of the rows (axis 0) or columns; test on their cells in known columns."""

    def made(seed: int) -> Split:
        whole, test, features = make(seed)
        sides = [np.concatenate(pair) for pair in zip(whole.cells[:2], test[:2], strict=True)]
        present = np.unique(whole.cells[axis])
        drawn = np.random.default_rng(seed).permutation(present)[: int(NEW * present.size)]
        new = np.isin(sides[axis], drawn)
        kept = ~new
        if whole.mirrored:
            kept &= ~np.isin(sides[1 - axis], drawn)
        fitted = whole.part(kept[: whole.cells.values.size])
        known = np.isin(sides[1 - axis], fitted.cells[1 - axis])
        cells = Cells(sides[0], sides[1], np.concatenate([whole.cells.values, test.values]))
        joined = {name: np.append(whole.features[name], features[name])[new & known]
                  for name in features}  # fmt: skip
        return Split(fitted, cells.where(new & known), joined)

    return made


def wsdream_5(seed: int) -> Split:
    """Train on the uniform 5 % sample, test on the other fragments; the same for every seed."""
    cells, shape, source = _wsdream()
    return divide(cells, shape, source & 1 > 0)


def wsdream_5_places(seed: int) -> Split:
    """Add country, autonomous system, provider and coordinates of users and services."""
    made = wsdream_5(seed)
    with np.load(real_file("wsdream1_side.npz")) as file:
        users, services = (
            {name: file[name] for name in file.files if name.startswith(side)}
            for side in ("user_", "service_")
        )
    return made._replace(train=replace(made.train, row_features=users, col_features=services))


def wsdream_10(seed: int) -> Split:
    """Train on a random 10 % of the matrix, test on the other fragments."""
    cells, shape, _ = _wsdream()
    fitted = np.zeros(cells.values.size, bool)
    fitted[np.random.default_rng(seed).permutation(fitted.size)[:197_468]] = True
    return divide(cells, shape, fitted)


def planetlab_10(seed: int) -> Split:
    """Train on 10 % of the unordered pairs of nodes, in both directions."""
    with np.load(real_file("netlatency_planetlab.npz")) as file:
        times = sp.coo_array(file["rtt_ms"][0])  # without the diagonal, which is 0
    train, test = split(times, 0.1, by="pair", random_state=seed)
    fitted = Training(_cells(*train.coords, train.data), train.shape, mirrored=True)
    return Split(fitted, _cells(*test.coords, test.data))


def kuairand(seed: int) -> Split:
    """Train on 80 % of the positive watch times; most videos have a single one."""
    with np.load(real_file("kuairand_playtime.npz")) as file:
        lines = _cells(file["row"], file["col"], file["val"])
    shape = (int(lines.rows.max()) + 1, int(lines.cols.max()) + 1)
    lines = lines.where(lines.values > 0)
    order = np.random.default_rng(seed).permutation(lines.values.size)
    fitted = np.zeros(order.size, bool)
    fitted[order[: int(0.8 * order.size)]] = True
    return divide(lines, shape, fitted)


def kuairand_duration(seed: int) -> Split:
    """Add the duration of every video, including those without training observations."""
    made = kuairand(seed)
    duration = np.full(made.train.shape[1], np.nan)
    with np.load(real_file("kuairand_playtime.npz")) as file:
        duration[file["col"]] = file["duration_s"]
    return made._replace(train=replace(made.train, col_features={"duration_s": duration}))


def _wsdream() -> tuple[Cells, tuple[int, int], NDArray[Any]]:
    with np.load(real_file("wsdream1_rt_union.npz")) as file:
        kept = file["src"] & 7 > 0  # bit 8 is a dense block, not a random sample
        cells = _cells(file["row"][kept], file["col"][kept], file["val"][kept])
        return cells, (int(file["shape"][0]), int(file["shape"][1])), file["src"][kept]


def _cells(rows: Any, cols: Any, values: Any) -> Cells:
    return Cells(rows.astype(np.int64), cols.astype(np.int64), values.astype(np.float64))


REAL: dict[str, Make] = {
    "wsdream5": wsdream_5,
    "wsdream10": wsdream_10,
    "planetlab": planetlab_10,
    "kuairand": kuairand,
}
REAL_WITH_FEATURES: dict[str, Make] = {
    "wsdream5_places": wsdream_5_places,
    "kuairand_duration": kuairand_duration,
}

"""Leverages and sums over residuals, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from fastemf.kernels import residual_sums as columns
from fastemf.kernels.problem import hash_of_cell, is_in_sample
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.solver.residual_sums import residual_sums, slopes
from fastemf.solver.weighting import Weighting
from fastemf.sources.cell_sample import N_HASHES, CellSample, HashRange, draw_marks
from fastemf.sources.memory import observe
from fastemf.tuning.trial import find_shift

M, N, K = 14, 11, 2
COUNT, LONG = 690, 600  # observations, and how many of them are of one row
OMEGA = 0.2


class Scene:
    """Observations of a random model, with weights, scales and a sample by `parts`."""

    def __init__(self, parts):
        names = ("intercepts", "weighted", "scaled", "sampled")
        intercepts, weighted, scaled, sampled = (name in parts for name in names)
        rng = np.random.default_rng(5)
        entries = rng.integers(0, M, COUNT), rng.integers(0, N, COUNT)
        entries[0][-LONG:] = 3
        self.i, self.j = entries
        self.values = rng.standard_normal(COUNT)
        self.v = rng.uniform(0.2, 3, COUNT) if weighted else np.ones(COUNT)
        data = observe((*entries, self.values), weights=self.v if weighted else None, shape=(M, N))
        mu = 0.3 if intercepts else None
        pair = rng.uniform(0.5, 2, M), rng.uniform(0.5, 2, N)
        self.p, self.q = pair if scaled else (np.ones(M), np.ones(N))
        ridge = rng.uniform(1, 5, M), rng.uniform(1, 5, N)
        self.weighting = Weighting(ridge, pair, pair if scaled else None)
        self.marks = marks = draw_marks(data, rng)
        part = HashRange(N_HASHES - 1000, N_HASHES // 2)
        sample = CellSample(marks, part) if sampled else None
        self.counts = np.ones(COUNT, bool)
        if sampled:
            cells = zip(marks[0][self.i].tolist(), marks[1][self.j].tolist(), strict=True)
            self.counts = np.array([is_in_sample(*cell, *part) for cell in cells])
        self.engine = CompletionEngine(
            data, OMEGA, mu=mu, weighting=self.weighting, sample=sample, n_threads=1
        )
        width = K + intercepts
        self.X, self.Y = rng.standard_normal((M, width)), rng.standard_normal((N, width))
        product = np.sum(self.X[self.i, :K] * self.Y[self.j, :K], axis=1)
        if intercepts:
            product += mu + self.X[self.i, K] + self.Y[self.j, K]
        self.r = self.values - product
        self.w = np.where(self.r >= 0, OMEGA, 1 - OMEGA)


CASES = ["bare", "intercepts weighted", "intercepts scaled sampled", "weighted scaled sampled"]


@pytest.fixture(params=CASES)
def scene(request):
    return Scene(request.param.split())


def test_leverages_are_those_of_the_normal_equations(scene):
    ridge = Ridge(0.07, 0.03)
    found = scene.engine.leverages(scene.X, scene.Y, ridge)
    weight = scene.v * scene.w * scene.p[scene.i] * scene.q[scene.j]
    for axis, own, at, other, to in (
        (0, scene.p, scene.i, scene.Y, scene.j), (1, scene.q, scene.j, scene.X, scene.i)
    ):  # fmt: skip
        design = other[to].copy()
        design[:, K:] = 1.0
        penalty = np.full(design.shape[1], ridge.factors)
        for item in range(own.size):
            mine = scene.counts & (at == item)
            penalty[:K] = ridge.factors * scene.weighting.ridge[axis][item]
            penalty[K:] = ridge.intercepts * scene.weighting.intercepts[axis][item]
            B, u = design[mine], weight[mine]
            hat = B @ np.linalg.solve(B.T @ (u[:, None] * B) + np.diag(penalty), B.T * u)
            expected = np.trace(hat) / u.sum() if mine.any() else 0.0
            assert found[axis][item] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_are_those_of_numpy(scene, axis):
    rng = np.random.default_rng(0)
    leverages = rng.uniform(0, 0.8, M), rng.uniform(0, 0.8, N)
    variances = rng.uniform(0.5, 2, M), rng.uniform(0.5, 2, N)
    found = residual_sums(scene.engine, axis, scene.X, scene.Y, leverages, 0.1, variances=variances)
    i, j, v, w = scene.i, scene.j, scene.v, scene.w
    fitted = np.minimum(v, 1) * w * scene.p[i] * scene.q[j]
    r = scene.r / (1 - np.minimum(0.95, fitted * leverages[0][i]))
    r /= 1 - np.minimum(0.95, fitted * leverages[1][j])
    t = r - 0.1
    u = np.where(t >= 0, OMEGA, 1 - OMEGA)
    of_other = (j, i)[axis]
    parts = {
        columns.MASS: v,
        columns.WEIGHT: v * (scene.q, scene.p)[axis][of_other],
        columns.SLOPE: v * u * t,
        columns.CURVATURE: v * u,
        columns.LOSS: v * u * t**2,
        columns.NOISE: v * (w * r) ** 2 / variances[1 - axis][of_other],
        columns.ABOVE: v * np.maximum(t, 0),
        columns.BELOW: v * np.maximum(-t, 0),
        columns.SQUARED_LOSS: v * (u * (t / scene.engine.unit) ** 2) ** 2,
    }
    assert found.shape == ((M, N)[axis], len(parts))
    for column, part in parts.items():
        expected = np.bincount((i, j)[axis], part * scene.counts, minlength=(M, N)[axis])
        np.testing.assert_allclose(found[:, column], expected, rtol=1e-11, atol=1e-11)


def test_slopes_multiply_as_their_matrix_does(scene):
    rng, signed = np.random.default_rng(0), scene.engine.sample is not None  # by a sample's hash
    scales = rng.uniform(0.5, 2, M), rng.uniform(0.5, 2, N)
    forward, backward = slopes(scene.engine, scene.X, scene.Y, scales, signed=signed)
    slope = scene.v * scene.w * scene.r * scales[0][scene.i] * scales[1][scene.j] * scene.counts
    if signed:
        rows, cols = scene.marks[0][scene.i].tolist(), scene.marks[1][scene.j].tolist()
        bits = [hash_of_cell(*cell) & 1 for cell in zip(rows, cols, strict=True)]
        slope = np.where(np.array(bits, bool), -slope, slope)
    dense = np.zeros((M, N))
    np.add.at(dense, (scene.i, scene.j), slope)
    right, left = rng.standard_normal((N, 3)), rng.standard_normal((M, 3))
    np.testing.assert_allclose(forward(right), dense @ right, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(backward(left), dense.T @ left, rtol=1e-10, atol=1e-10)


def test_the_shift_is_the_expectile_of_leave_one_out_residuals(scene):
    leverages = np.full(M, 0.3), np.full(N, 0.1)
    shift = find_shift(scene.engine, (scene.X, scene.Y), leverages, rounds=40)
    sums = residual_sums(scene.engine, 0, scene.X, scene.Y, leverages, shift).sum(axis=0)
    assert abs(sums[columns.SLOPE]) <= 1e-11 * (sums[columns.ABOVE] + sums[columns.BELOW])


def test_leverages_predict_leave_one_out_residuals():
    """Without ridge on a constant row: leaving one of n equal observations out, h = 1 / n."""
    n = 9
    R = np.ones((1, n)) + np.arange(n)
    engine = CompletionEngine(observe(R), 0.5, mu=None, n_threads=1)
    X, Y = np.array([[R.mean()]]), np.ones((n, 1))
    rows, _ = engine.leverages(X, Y, Ridge(1e-14, 0.0))
    assert rows[0] * 0.5 == pytest.approx(1 / n)
    sums = residual_sums(engine, 0, X, Y, (rows, np.zeros(n)))
    left_out = [(R[0, j] - np.delete(R[0], j).mean()) ** 2 for j in range(n)]
    assert sums[0, columns.LOSS] == pytest.approx(0.5 * np.sum(left_out))

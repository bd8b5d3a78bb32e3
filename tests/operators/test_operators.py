"""Operators: linear, adjoint, equal in every representation; drawn entries are what they claim."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from strategies import seeds

from fastemf.kernels.random_entries import philox
from fastemf.operators import (
    Dense,
    Entries,
    Gaussian,
    Linear,
    Rademacher,
    RankOne,
    Sparse,
    full,
    runs,
)
from fastemf.operators.conversion import as_operator

KINDS = ("gaussian", "rademacher", "dense", "float32", "sparse", "entries", "rank one", "linear")


def make(kind, p, m, n, seed):
    """An operator and its dense (p, m, n) meaning, taken from what it was made of."""
    rng = np.random.default_rng(seed)
    if kind == "gaussian":
        matrices = [oracle.gaussian_matrix(seed, i, m, n) for i in range(p)]
        return Gaussian(p, (m, n), seed), np.array(matrices) / np.sqrt(p)
    if kind == "rademacher":
        matrices = [oracle.rademacher_matrix(seed, i, m, n) for i in range(p)]
        return Rademacher(p, (m, n), seed), np.array(matrices) / np.sqrt(p)
    if kind == "entries":
        rows, cols = rng.integers(0, m, p), rng.integers(0, n, p)
        dense = np.zeros((p, m, n))
        dense[np.arange(p), rows, cols] = 1
        return Entries(rows, cols, (m, n)), dense
    if kind == "rank one":
        U, V = rng.standard_normal((p, m)), rng.standard_normal((p, n))
        return RankOne(U, V), np.einsum("pi,pj->pij", U, V)
    dense = rng.standard_normal((p, m, n))
    if kind == "float32":
        return Dense(dense.astype(np.float32)), dense.astype(np.float32).astype(float)
    if kind == "sparse":
        dense[rng.random(dense.shape) < 0.6] = 0
        return Sparse(sp.coo_array(dense.reshape(p, -1)), (m, n)), dense
    if kind == "linear":
        return Linear(aslinearoperator(dense.reshape(p, -1)), (m, n)), dense
    return Dense(dense), dense


@st.composite
def cases(draw):
    """An operator with its dense meaning, and factors and coefficients of fitting shapes."""
    kind = draw(st.sampled_from(KINDS))
    p, m, n = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    k, seed = draw(st.integers(1, 3)), draw(seeds)
    rng = np.random.default_rng(seed)
    A, dense = make(kind, p, m, n, seed)
    X, Y = rng.standard_normal((m, k)), rng.standard_normal((n, k))
    return A, dense, X, Y, rng.standard_normal(p)


def tolerance(A):
    return {"rtol": 0, "atol": 1e-4 if A.dtype == np.float32 else 1e-12}


@given(cases())
def test_every_representation_is_its_dense_meaning(case):
    A, dense, X, Y, b = case
    close = tolerance(A)
    np.testing.assert_allclose(A.to_dense(), dense, **close)
    np.testing.assert_allclose(A.forward(X, Y), oracle.measurements(dense, X, Y), **close)
    S = np.einsum("p,pij->ij", b, dense)
    np.testing.assert_allclose(A.adjoint_times(b, Y), S @ Y, **close)
    np.testing.assert_allclose(A.adjoint_times(b, X, 1), S.T @ X, **close)
    for side, other in ((0, Y), (1, X)):
        expected = oracle.sensing_design(dense, other, side)
        np.testing.assert_allclose(A.design(other, side), expected, **close)
        some = np.arange(len(b))[::-2]
        np.testing.assert_allclose(A.design(other, side, some), expected[some], **close)
    assert A.forward(X, Y).dtype == A.design(X, 1).dtype == A.adjoint_times(b, Y).dtype == A.dtype


@given(cases(), st.floats(-3, 3), seeds)
def test_linear_and_adjoint(case, c, seed):
    A, _, X, Y, b = case
    close = tolerance(A)
    other = np.random.default_rng(seed).standard_normal(X.shape)
    both = A.forward(np.hstack([X, c * other]), np.hstack([Y, Y]))
    np.testing.assert_allclose(both, A.forward(X, Y) + c * A.forward(other, Y), **close)
    by_forward = float(b @ A.forward(X, Y))
    scale = 1 + np.linalg.norm(b) * np.linalg.norm(A.forward(X, Y))
    for side, this, fixed in ((0, X, Y), (1, Y, X)):
        by_adjoint = np.sum(A.adjoint_times(b, fixed, side) * this)
        assert abs(by_adjoint - by_forward) <= close["atol"] * scale


def test_awkward_arrays_are_taken_and_left_as_they_are():
    rng = np.random.default_rng(2)
    dense, X, Y = (rng.integers(-3, 4, size) for size in ((5, 4, 3), (4, 2), (3, 2)))
    expected = oracle.measurements(dense, X, Y)
    frozen = dense.astype(float)
    for array in (frozen, X, Y):
        array.setflags(write=False)
    forms = [dense, dense.tolist(), frozen, dense.astype(">f8"), np.asfortranarray(dense)]
    forms += [np.repeat(dense, 2, axis=2)[:, :, ::2], dense.astype(np.float16)]
    for form in forms:
        np.testing.assert_array_equal(Dense(form).forward(X, Y), expected)
        np.testing.assert_array_equal(Dense(form).design(Y, 0) @ X.ravel(), expected)
    np.testing.assert_array_equal(frozen, dense)


# --- drawn entries --------------------------------------------------------------------------

# Random123's known answers for philox4x32-10: counter, key, words.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox_gives_the_published_words(counter, key, words):
    assert tuple(oracle.philox4x32(counter, key)) == words
    with np.errstate(over="ignore"):
        drawn = philox(*map(np.uint32, counter), *map(np.uint64, key))
    assert tuple(map(int, drawn)) == words


def entries_one_by_one(A):
    """Every entry from its own call of `forward`, in reverse order."""
    _, m, n = A.shape
    out = np.empty(A.shape)
    for r in reversed(range(m)):
        for c in reversed(range(n)):
            out[:, r, c] = A.forward(np.eye(m)[:, [r]], np.eye(n)[:, [c]])
    return out


@pytest.mark.parametrize("kind", [Gaussian, Rademacher])
def test_an_entry_has_the_same_bits_however_it_is_reached(kind, monkeypatch):
    A = kind(7, (3, 5), seed=2**40 + 3)
    dense = A.to_dense()
    np.testing.assert_array_equal(entries_one_by_one(A), dense)
    np.testing.assert_array_equal(A.design(np.eye(3), 1).reshape(7, 5, 3).transpose(0, 2, 1), dense)
    np.testing.assert_array_equal(A.design(np.eye(5), 0, [6, 2]).reshape(2, 3, 5), dense[[6, 2]])
    for i in range(7):
        np.testing.assert_array_equal(A.adjoint_times(np.eye(7)[i], np.eye(5)), dense[i])
    monkeypatch.setattr(runs, "BLOCKS_PER_THREAD", 3)
    monkeypatch.setattr(full, "ENTRIES_PER_LAUNCH", 20)
    np.testing.assert_array_equal(kind(7, (3, 5), seed=2**40 + 3).to_dense(), dense)


@pytest.mark.subprocess
@pytest.mark.compiled
def test_bits_do_not_depend_on_the_jit():
    code = """
import numpy as np
from fastemf.operators import Gaussian
print(Gaussian(3, (2, 5), seed=11).to_dense().tobytes().hex())
"""
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert printed == Gaussian(3, (2, 5), seed=11).to_dense().tobytes().hex()


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["gaussian", "rademacher", "dense", "sparse", "rank one"])
def test_bits_do_not_depend_on_the_threads(kind, monkeypatch):
    monkeypatch.setattr(full, "ENTRIES_PER_THREAD", 1)
    if kind == "gaussian":
        A = Gaussian(150, (40, 33), seed=5)
    elif kind == "rademacher":
        A = Rademacher(150, (40, 33), seed=5)
    else:
        A, _ = make(kind, 150, 40, 33, 5)
    rng = np.random.default_rng(1)
    X, Y, b = (rng.standard_normal(size) for size in ((40, 3), (33, 3), 150))
    for run in (
        lambda n_jobs: A.forward(X, Y, n_jobs=n_jobs),
        lambda n_jobs: A.adjoint_times(b, Y, n_jobs=n_jobs),
        lambda n_jobs: A.adjoint_times(b, X, 1, n_jobs=n_jobs),
        lambda n_jobs: A.design(Y, 0, n_jobs=n_jobs),
        lambda n_jobs: A.design(X, 1, n_jobs=n_jobs),
    ):
        np.testing.assert_array_equal(run(1), run(2))


def test_seeds_and_kinds_draw_different_entries():
    draws = [Gaussian(2, (2, 2), seed).to_dense() for seed in (0, 1, 2**32)]
    assert len({draw.tobytes() for draw in draws}) == 3
    signs = np.sign(Gaussian(2, (8, 8), 0).to_dense()) * Rademacher(2, (8, 8), 0).to_dense()
    assert len(np.unique(signs)) == 2


@pytest.fixture(scope="module")
def sample():
    """Four million Gaussian entries, times √p."""
    return 40.0 * Gaussian(1600, (50, 51), seed=7).to_dense()


@pytest.mark.compiled
def test_gaussian_moments_and_tails(sample):
    z = sample.ravel()
    size = z.size
    # Each within five standard errors of the moments of N(0, 1).
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs(np.mean(z**power) - moment) < 5 * np.sqrt(variance / size)
    assert stats.kstest(z[:: size // 200_000], "norm").pvalue > 1e-4
    for level in (2.0, 3.0, 4.0, 4.5):
        expected = size * special.erfc(level / np.sqrt(2))
        assert abs(np.count_nonzero(np.abs(z) > level) - expected) < 5 * np.sqrt(expected)


@pytest.mark.compiled
def test_gaussian_neighbours_are_independent(sample):
    _, m, n = sample.shape
    reseeded = 40.0 * Gaussian(1600, (m, n), seed=8).design(np.eye(n), 0, range(200))
    half = (n + 1) // 2
    pairs = {
        "columns": (sample[:, :, :-1], sample[:, :, 1:]),
        "rows": (sample[:, :-1], sample[:, 1:]),
        "measurements": (sample[:-1], sample[1:]),
        "the two of one group": (sample[:, :, : n - half], sample[:, :, half:]),
        "seeds": (sample[:200], reseeded.reshape(200, m, n)),
    }
    for a, b in pairs.values():
        for f in (lambda z: z, np.square, np.abs):
            x, y = f(a.ravel()), f(b.ravel())
            correlation = np.corrcoef(x, y)[0, 1]
            assert abs(correlation) < 5 / np.sqrt(x.size)


@pytest.mark.compiled
def test_rademacher_signs_are_fair_and_independent():
    signs = 20.0 * Rademacher(400, (60, 130), seed=3).to_dense()
    np.testing.assert_array_equal(np.abs(signs), 1)
    for sums in (signs, signs[:, :, 1:] * signs[:, :, :-1], signs[1:] * signs[:-1]):
        assert abs(sums.mean()) < 5 / np.sqrt(sums.size)
    by_bit = signs.mean(axis=(0, 1))  # every column is one bit of the words
    assert np.abs(by_bit).max() < 5 / np.sqrt(400 * 60)


# --- refusals -------------------------------------------------------------------------------


class Duck:
    """An operator somebody else wrote; `wrong` breaks one of its methods."""

    dtype = np.dtype(np.float64)

    def __init__(self, dense, wrong=""):
        self.inner, self.shape, self.wrong = Dense(dense), np.shape(dense), wrong

    def forward(self, X, Y, *, n_jobs=-1):
        return self.inner.forward(X, Y) * (np.nan if self.wrong == "nan" else 1)

    def adjoint_times(self, b, factor, side=0, *, n_jobs=-1):
        wrong = self.wrong == f"adjoint {side}"
        return self.inner.adjoint_times(b, factor, side) * (1 + 1e-6 * wrong)

    def design(self, factor, side, rows=None, *, n_jobs=-1):
        return self.inner.design(factor, side, rows) * (1 + (self.wrong == "design"))


CUBE = np.random.default_rng(0).standard_normal((6, 3, 2))


def test_any_object_with_the_methods_is_an_operator():
    assert as_operator(Duck(CUBE)).shape == (6, 3, 2)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("adjoint 0", "forward and adjoint must agree"),
        ("adjoint 1", "forward and adjoint must agree"),
        ("design", "design"),
        ("nan", "A must be finite"),
    ],
)
def test_an_operator_that_contradicts_itself_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        as_operator(Duck(CUBE, wrong))


def test_a_linear_operator_that_contradicts_itself_is_refused():
    flat = CUBE.reshape(6, -1)
    wrong = LinearOperator((6, 6), matvec=lambda x: flat @ x, rmatvec=lambda y: flat.T @ y + 1)
    with pytest.raises(ValueError, match="forward and adjoint must agree"):
        Linear(wrong, (3, 2))
    oneway = LinearOperator((6, 6), matvec=lambda x: flat @ x)
    with pytest.raises(TypeError, match="rmatvec"):
        Linear(oneway, (3, 2))


NAN = np.where(np.arange(36).reshape(6, 3, 2) == 14, np.nan, CUBE)
REFUSED = {
    "no measurement": (lambda: Gaussian(0, (3, 2)), "p must be at least 1, got 0"),
    "no row": (lambda: Gaussian(3, (0, 2)), r"shape\[0\] must be at least 1, got 0"),
    "shape": (lambda: Rademacher(3, 4), r"shape must be \(rows, columns\), got 4"),
    "huge": (lambda: Gaussian(2**32, (3, 2)), r"p must be below 2\*\*32"),
    "seed": (lambda: Gaussian(3, (3, 2), seed=-1), "seed must be at least 0, got -1"),
    "large seed": (lambda: Gaussian(3, (3, 2), seed=2**64), r"seed must be below 2\*\*64"),
    "float seed": (lambda: Gaussian(3, (3, 2), seed=0.5), "seed must be an integer"),
    "flat": (lambda: Dense(np.ones((3, 2))), r"shape \(p, m, n\).* got \(3, 2\)"),
    "empty": (lambda: Dense(np.ones((0, 3, 2))), r"none of them 0, got \(0, 3, 2\)"),
    "object": (lambda: Dense(CUBE.astype(object)), "A must hold real numbers, got dtype object"),
    "nan": (lambda: Dense(NAN), r"A must be finite, got nan at \(1, 0\) of measurement 2"),
    "sparse nan": (
        lambda: Sparse(sp.csr_array(NAN.reshape(6, -1)), (3, 2)),
        r"A must be finite, got nan at \(1, 0\) of measurement 2",
    ),
    "sparse shape": (lambda: Sparse(sp.csr_array((6, 7)), (3, 2)), "m . n = 6 columns"),
    "sparse empty": (lambda: Sparse(sp.csr_array((0, 6)), (3, 2)), "at least one measurement"),
    "not sparse": (lambda: Sparse(np.ones((6, 6)), (3, 2)), "matrix must be a scipy sparse"),
    "not linear": (lambda: Linear(np.ones((6, 6)), (3, 2)), "operator must be a scipy LinearOp"),
    "row": (lambda: Entries([3], [0], (3, 2)), "rows must be below 3, got 3"),
    "lengths": (lambda: Entries([0, 1], [0], (3, 2)), r"equal length .* \(2,\) and \(1,\)"),
    "no entries": (lambda: Entries([], [], (3, 2)), "not empty"),
    "rank one lengths": (lambda: RankOne(np.ones((4, 3)), np.ones((5, 2))), "got 4 and 5"),
    "rank one flat": (lambda: RankOne(np.ones(3), np.ones((1, 2))), r"U must be a matrix.*\(3,\)"),
    "rank one nan": (lambda: RankOne([[np.nan]], [[1.0]]), r"U .* finite, got nan at \(0, 0\)"),
    "factor": (lambda: Dense(CUBE).forward(np.ones((2, 1)), np.ones((2, 1))), r"X .*\(3, rank\)"),
    "ranks": (lambda: Dense(CUBE).forward(np.ones((3, 1)), np.ones((2, 2))), "equal ranks"),
    "side": (lambda: Dense(CUBE).design(np.ones((2, 1)), 2), "side must be 0 .* got 2"),
    "coefficients": (lambda: Dense(CUBE).adjoint_times([1.0], np.ones((2, 1))), r"\(6,\), got"),
    "rows": (lambda: Dense(CUBE).design(np.ones((2, 1)), 0, [6]), "rows must be below 6, got 6"),
    "dense": (lambda: Dense(CUBE).to_dense(max_bytes=10), "takes 288 bytes, above max_bytes=10"),
    "text": (lambda: as_operator("A"), "A must be an operator .* got str"),
    "no shape": (lambda: as_operator(sp.csr_array((6, 6))), "shape must be given"),
    "other shape": (lambda: as_operator(CUBE, (2, 3)), r"A's \(3, 2\), got \(2, 3\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_and_why(name):
    call, words = REFUSED[name]
    with pytest.raises((ValueError, TypeError, IndexError), match=words):
        call()


def test_a_representation_says_what_it_is():
    assert repr(Gaussian(9, (3, 2))) == "<Gaussian, 9 measurements of 3 x 2 matrices, float64>"


def test_more_cells_than_can_be_numbered_are_refused():
    with pytest.raises(
        ValueError, match=r"fewer than 2\*\*63 cells, got \(4294967296, 4294967296\)"
    ):
        Entries([1], [1], (2**32, 2**32))

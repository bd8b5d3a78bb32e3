"""Operators: linearity, adjoints, equality of representations, distribution of random entries."""

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from interpreter import run_python
from operator_examples import KINDS, UserDefined, make_operator
from scipy import special, stats
from scipy.sparse.linalg import LinearOperator
from strategies import seeds

from fastemf.kernels.random_entries import philox
from fastemf.operators import Dense, Entries, Gaussian, Linear, Rademacher, RankOne, Sparse
from fastemf.operators.conversion import as_operator

ORACLES = {"gaussian": oracle.gaussian_matrix, "rademacher": oracle.rademacher_matrix}


@st.composite
def cases(draw):
    """Draw an operator, its dense array, and factors and coefficients of matching shapes."""
    kind = draw(st.sampled_from(KINDS))
    p, m, n = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    k, seed = draw(st.integers(1, 3)), draw(seeds)
    rng = np.random.default_rng(seed)
    A, dense = make_operator(kind, p, (m, n), seed)
    if kind in ORACLES:
        dense = np.array([ORACLES[kind](seed, i, m, n) for i in range(p)]) / np.sqrt(p)
    X, Y = rng.standard_normal((m, k)), rng.standard_normal((n, k))
    return A, dense.astype(float), X, Y, rng.standard_normal(p)


def tolerance(A):
    return {"rtol": 0, "atol": 1e-4 if A.dtype == np.float32 else 1e-12}


@given(cases())
def test_every_operator_equals_its_dense_array(case):
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


def test_unusual_arrays_are_accepted_and_not_modified():
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


# --- random entries -------------------------------------------------------------------------

# Random123's known answers for philox4x32-10: counter, key, words.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox_reproduces_published_words(counter, key, words):
    assert tuple(oracle.philox4x32(counter, key)) == words
    with np.errstate(over="ignore"):
        drawn = philox(*map(np.uint32, counter), *map(np.uint64, key))
    assert tuple(map(int, drawn)) == words


def entries_one_by_one(A):
    """Compute every entry by a separate call of `forward`, in reverse order."""
    _, m, n = A.shape
    out = np.empty(A.shape)
    for r, c in reversed(list(np.ndindex(m, n))):
        out[:, r, c] = A.forward(np.eye(m)[:, [r]], np.eye(n)[:, [c]])
    return out


@pytest.mark.parametrize("kind", [Gaussian, Rademacher])
def test_entries_are_bitwise_identical_in_every_method(kind, monkeypatch):
    A = kind(7, (3, 5), seed=2**40 + 3)
    dense = A.to_dense()
    np.testing.assert_array_equal(entries_one_by_one(A), dense)
    np.testing.assert_array_equal(A.design(np.eye(3), 1).reshape(7, 5, 3).transpose(0, 2, 1), dense)
    np.testing.assert_array_equal(A.design(np.eye(5), 0, [6, 2]).reshape(2, 3, 5), dense[[6, 2]])
    for i in range(7):
        np.testing.assert_array_equal(A.adjoint_times(np.eye(7)[i], np.eye(5)), dense[i])
    monkeypatch.setattr("fastemf.operators.kernel_operator.BLOCKS_PER_THREAD", 3)
    monkeypatch.setattr("fastemf.operators.kernel_operator.ENTRIES_PER_LAUNCH", 20)
    np.testing.assert_array_equal(kind(7, (3, 5), seed=2**40 + 3).to_dense(), dense)


@pytest.mark.subprocess
@pytest.mark.compiled
def test_bits_do_not_depend_on_the_jit():
    code = """
    from fastemf.operators import Gaussian
    print(Gaussian(3, (2, 5), seed=11).to_dense().tobytes().hex())
    """
    words = run_python(code, NUMBA_DISABLE_JIT="1")
    assert words == [Gaussian(3, (2, 5), seed=11).to_dense().tobytes().hex()]


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["gaussian", "rademacher", "dense", "sparse", "rank one"])
def test_bits_do_not_depend_on_the_threads(kind, monkeypatch):
    monkeypatch.setattr("fastemf.operators.kernel_operator.ENTRIES_PER_THREAD", 1)
    A, _ = make_operator(kind, 150, (40, 33), 5)
    rng = np.random.default_rng(1)
    X, Y, b = (rng.standard_normal(size) for size in ((40, 3), (33, 3), 150))
    for method, *args in (
        (A.forward, X, Y), (A.adjoint_times, b, Y), (A.adjoint_times, b, X, 1), (A.design, Y, 0),
        (A.design, X, 1),
    ):  # fmt: skip
        np.testing.assert_array_equal(method(*args, n_jobs=1), method(*args, n_jobs=2))


def test_seeds_and_kinds_have_different_entries():
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
        for f in (np.positive, np.square, np.abs):
            correlation = np.corrcoef(f(a.ravel()), f(b.ravel()))[0, 1]
            assert abs(correlation) < 5 / np.sqrt(a.size)


@pytest.mark.compiled
def test_rademacher_signs_are_fair_and_independent():
    signs = 20.0 * Rademacher(400, (60, 130), seed=3).to_dense()
    np.testing.assert_array_equal(np.abs(signs), 1)
    for sums in (signs, signs[:, :, 1:] * signs[:, :, :-1], signs[1:] * signs[:-1]):
        assert abs(sums.mean()) < 5 / np.sqrt(sums.size)
    by_bit = signs.mean(axis=(0, 1))  # every column is one bit of the words
    assert np.abs(by_bit).max() < 5 / np.sqrt(400 * 60)


# --- errors ---------------------------------------------------------------------------------


CUBE = np.random.default_rng(0).standard_normal((6, 3, 2))


def linear(**adjoint):
    return Linear(LinearOperator((6, 6), matvec=lambda x: FLAT @ x, **adjoint), (3, 2))


FLAT = CUBE.reshape(6, -1)
AGREE = "forward and adjoint must agree"
NAN_AT = r"A must be finite, got nan at \(1, 0\) of measurement 2"
NAN = np.where(np.arange(36).reshape(6, 3, 2) == 14, np.nan, CUBE)
INVALID = {
    "adjoint 0": (lambda: as_operator(UserDefined(CUBE, "adjoint 0")), AGREE),
    "adjoint 1": (lambda: as_operator(UserDefined(CUBE, "adjoint 1")), AGREE),
    "design": (lambda: as_operator(UserDefined(CUBE, "design")), "design"),
    "user-defined nan": (lambda: as_operator(UserDefined(CUBE, "nan")), "A must be finite"),
    "linear adjoint": (lambda: linear(rmatvec=lambda y: FLAT.T @ y + 1), AGREE),
    "one way": (linear, "rmatvec"),
    "cells": (lambda: Entries([1], [1], (2**32, 2**32)), r"fewer than 2\*\*63 cells, got \(42949"),
    "no measurement": (lambda: Gaussian(0, (3, 2)), "p must be at least 1, got 0"),
    "shape": (lambda: Rademacher(3, 4), r"shape must be \(rows, columns\), got 4"),
    "huge": (lambda: Gaussian(2**32, (3, 2)), r"p must be below 2\*\*32"),
    "seed": (lambda: Gaussian(3, (3, 2), seed=-1), "seed must be at least 0, got -1"),
    "flat": (lambda: Dense(np.ones((3, 2))), r"shape \(p, m, n\).* got \(3, 2\)"),
    "empty": (lambda: Dense(np.ones((0, 3, 2))), r"none of them 0, got \(0, 3, 2\)"),
    "object": (lambda: Dense(CUBE.astype(object)), "A must hold real numbers, got dtype object"),
    "nan": (lambda: Dense(NAN), NAN_AT),
    "sparse shape": (lambda: Sparse(sp.csr_array((6, 7)), (3, 2)), "m . n = 6 columns"),
    "sparse empty": (lambda: Sparse(sp.csr_array((0, 6)), (3, 2)), "at least one measurement"),
    "not sparse": (lambda: Sparse(np.ones((6, 6)), (3, 2)), "matrix must be a scipy sparse"),
    "row": (lambda: Entries([3], [0], (3, 2)), "rows must be below 3, got 3"),
    "lengths": (lambda: Entries([0, 1], [0], (3, 2)), r"equal length .* \(2,\) and \(1,\)"),
    "rank one lengths": (lambda: RankOne(np.ones((4, 3)), np.ones((5, 2))), "got 4 and 5"),
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


@pytest.mark.parametrize("name", INVALID)
def test_errors_name_the_parameter_and_the_rule(name):
    call, words = INVALID[name]
    with pytest.raises((ValueError, TypeError, IndexError), match=words):
        call()


def test_any_object_with_the_methods_is_an_operator():
    assert as_operator(UserDefined(CUBE)).shape == (6, 3, 2)
    assert repr(Gaussian(9, (3, 2))) == "<Gaussian, 9 measurements of 3 x 2 matrices, float64>"

"""Operators of every kind, with the dense arrays that they represent."""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

from fastemf.operators import Dense, Entries, Gaussian, Linear, Rademacher, RankOne, Sparse

RANDOM = {"gaussian": Gaussian, "rademacher": Rademacher}
KINDS = (*RANDOM, "dense", "float32", "sparse", "entries", "rank one", "linear")


def make_operator(kind, p, shape, seed):
    """Return an operator and the dense (p, m, n) array of its A_i."""
    rng, (m, n) = np.random.default_rng(seed), shape
    if kind in RANDOM:
        A = RANDOM[kind](p, shape, seed)
        return A, A.to_dense()
    if kind == "entries":
        rows, cols = rng.integers(0, m, p), rng.integers(0, n, p)
        dense = np.zeros((p, m, n))
        dense[np.arange(p), rows, cols] = 1
        return Entries(rows, cols, shape), dense
    if kind == "rank one":
        U, V = rng.standard_normal((p, m)), rng.standard_normal((p, n))
        return RankOne(U, V), np.einsum("pi,pj->pij", U, V)
    dense = rng.standard_normal((p, m, n))
    if kind == "float32":
        dense = dense.astype(np.float32)
    if kind == "sparse":
        dense[rng.random(dense.shape) < 0.6] = 0
        return Sparse(sp.coo_array(dense.reshape(p, -1)), shape), dense
    if kind == "linear":
        return Linear(aslinearoperator(dense.reshape(p, -1)), shape), dense
    return Dense(dense), dense


class UserDefined:
    """A user-defined operator; `wrong` breaks one of its methods."""

    def __init__(self, dense, wrong=""):
        self.inner, self.shape, self.wrong = Dense(dense), np.shape(dense), wrong
        self.dtype = np.dtype(np.float64)

    def forward(self, X, Y, *, n_jobs=-1):
        return self.inner.forward(X, Y) * (np.nan if self.wrong == "nan" else 1)

    def adjoint_times(self, b, factor, side=0, *, n_jobs=-1):
        wrong = self.wrong == f"adjoint {side}"
        return self.inner.adjoint_times(b, factor, side) * (1 + 1e-6 * wrong)

    def design(self, factor, side, rows=None, *, n_jobs=-1):
        return self.inner.design(factor, side, rows) * (1 + (self.wrong == "design"))

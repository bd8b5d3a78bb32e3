"""Newton directions of a batch of rows, one row per lane of the vector registers.

The factorization takes k³ operations per row and is done for as many rows at once as a vector has
lanes. Factoring a small matrix is a chain of short dependent steps, and a batch needs one such
chain instead of eight or sixteen. Lanes never mix: the result of a row is bitwise identical in any
batch.
"""

from __future__ import annotations

from math import isfinite, sqrt

import numpy as np

from fastemf.kernels.compilation import helper, unit
from fastemf.kernels.kernel_args import invoke
from fastemf.kernels.simd import (
    lanes_in,
    lanes_of,
    lanes_out,
    panel,
    pivots,
    substitute_backward,
    substitute_forward,
)
from fastemf.kernels.vector_width import PANEL, PANEL_COLUMNS


@helper()
def _factor(batch):
    """Factor gram + diag(ridge) into upper triangles, one member of the batch per lane.

    kept[0] becomes the smallest ratio of a pivot to its diagonal element. It is 0 if a pivot was
    not above `floor`; the rest of that lane is then undefined. The solves multiply by `inverse`,
    the reciprocals of the diagonals.
    """
    members, gram, tall, ridge = batch.members, batch.gram, batch.tall, batch.ridge
    largest, floor, begin, U = batch.largest, batch.floor, batch.begin, batch.U
    diagonal, inverse, kept = batch.diagonal, batch.inverse, batch.kept
    lanes, q, n = lanes_of(U), ridge.shape[1], diagonal.shape[0]
    for b in range(n):
        for a in range(b // lanes * lanes, gram.shape[1], lanes):
            lanes_in(gram, members, tall, b, a, U, begin[b] + a)
        for l in range(lanes):
            # Beyond the unknowns the matrix is padded with a diagonal above the floor.
            U[begin[b] + b, l] += ridge[members[l], b] if b < q else largest[l]
            diagonal[b, l] = U[begin[b] + b, l]
    for l in range(lanes):
        kept[0, l] = 1
    for i in range(0, n, PANEL):
        pivots(U, begin, i, inverse, diagonal, floor, kept)
        for j in range(i + PANEL, n, PANEL_COLUMNS):
            panel(U, begin, i, j, inverse)


@unit()
def directions(sweep, batch):
    """Solve H p = g for the members, by the pseudo-inverse if H is numerically singular.

    For singular H, if `project` is set, x is projected onto the row space instead.

    `predicted` becomes the decrease of f that p predicts, and `pivot_ratio` the smallest ratio of a
    pivot to its diagonal element, 0 for singular H.
    """
    members, gram, tall, ridge = batch.members, batch.gram, batch.tall, batch.ridge
    largest, floor, begin, U = batch.largest, batch.floor, batch.begin, batch.U
    g, p, z, inverse, kept = batch.g, batch.p, batch.z, batch.inverse, batch.kept
    predicted, pivot_ratio, length = batch.predicted, batch.pivot_ratio, batch.length
    lanes, q, wide, n = lanes_of(U), ridge.shape[1], g.shape[1], batch.diagonal.shape[0]
    eps, tiny = sweep.problem.eps, sweep.problem.tiny
    for l in range(lanes):
        member = members[l]
        top = 0.0
        for a in range(q):
            top = max(top, np.float64(gram[member * tall + a, a]) + ridge[member, a])
        largest[l] = top
        # The floor is relative to the largest diagonal: a factor column of rounding errors is zero.
        floor[0, l] = max(64 * q * eps * top, tiny / eps)
    _factor(batch)
    for a in range(0, wide, lanes):
        lanes_in(g, members, 1, 0, a, z, a)
    for i in range(n):
        substitute_forward(U, begin[i], inverse, z, i, n)
    for i in range(n - 1, -1, -1):
        substitute_backward(U, begin[i], inverse, z, i, n)
    for a in range(0, wide, lanes):
        lanes_out(z, a, p, members, a)
    for l in range(lanes):
        member = members[l]
        if l > 0 and member == members[l - 1]:
            break  # spare lanes repeat the last member
        pivot_ratio[member] = kept[0, l]
        predicted[member] = 0
        if not isfinite(largest[l]):
            predicted[member] = np.nan
            continue
        # With fewer observations than unknowns H is singular unless the ridge prevents it.
        # Rounding errors must not decide that.
        short = length[member] < q
        for a in range(q):
            short = short and ridge[member, a] <= floor[0, l]
        if short or pivot_ratio[member] == 0:
            pivot_ratio[member] = 0
            if sweep.code.minimum_norm:
                most = length[member] if short else q
                invoke(sweep.code.minimum_norm, member, l, most, sweep, batch)
        else:
            for a in range(q):
                predicted[member] += np.float64(g[member, a]) * p[member, a]


@unit()
def minimum_norm(l, lane, most, sweep, batch):
    """Compute p = H⁺ g for singular H, or project x onto the row space if `project` is set.

    A Cholesky decomposition with diagonal pivoting, of rank at most `most`, gives H ≈ L Lᵀ with L
    of full column rank. Then H⁺ = L (LᵀL)⁻² Lᵀ, and L (LᵀL)⁻¹ Lᵀ is the projection, which removes
    the component of the starting point that no observation determines. `predicted` becomes g·p.
    """
    gram, ridge, floor = batch.gram, batch.ridge, batch.floor[0, lane]
    L, M, picked, project = batch.L, batch.M, batch.picked, batch.project[l]
    x, g, p = batch.x, batch.g, batch.p
    q, top = ridge.shape[1], l * batch.tall
    zero = L.dtype.type(0)
    # After its q rows M contains the remaining diagonal, then a right-hand side and solution.
    left, y = q, q + 1
    for a in range(q):
        M[left, a] = gram[top + a, a] + ridge[l, a]
        picked[a] = False
        for c in range(q):
            L[a, c] = 0
    rank = 0
    for c in range(most):
        pivot = -1
        for a in range(q):
            candidate = not picked[a] and M[left, a] > floor
            if candidate and (pivot < 0 or M[left, a] > M[left, pivot]):
                pivot = a
        if pivot < 0:
            break
        picked[pivot] = True
        root = sqrt(M[left, pivot])
        L[pivot, c] = root
        for a in range(q):
            if not picked[a]:
                total = gram[top + pivot, a] if a > pivot else gram[top + a, pivot]
                for e in range(c):
                    total -= L[a, e] * L[pivot, e]
                L[a, c] = total / root
                M[left, a] -= L[a, c] * L[a, c]
        rank += 1

    for a in range(rank):
        for b in range(a + 1):
            total = zero
            for i in range(q):
                total += L[i, a] * L[i, b]
            M[b, a] = total
    for a in range(rank):
        total = zero
        for i in range(q):
            total += L[i, a] * (x[l, i] if project else g[l, i])
        M[y, a] = total
    rank = _small_cholesky(M, rank)  # rounding may reduce it
    _small_solve(M, rank, y)
    predicted = 0.0
    for a in range(rank):
        predicted += np.float64(M[y, a]) * M[y, a]
    if not project:
        _small_solve(M, rank, y)
    for i in range(q):
        total = zero
        for a in range(rank):
            total += L[i, a] * M[y, a]
        if project:
            x[l, i] = total
        else:
            p[l, i] = total
    for i in range(q, p.shape[1]):
        p[l, i] = 0  # the solution of a singular lane is undefined
    batch.predicted[l] = predicted


@helper()
def _small_cholesky(M, n):
    """Overwrite the upper triangle of M[:n, :n] with its factor; return the number of rows."""
    for i in range(n):
        if not M[i, i] > 0:
            return i
        M[i, i] = sqrt(M[i, i])
        for a in range(i + 1, n):
            M[i, a] /= M[i, i]
        for b in range(i + 1, n):
            for a in range(b, n):
                M[b, a] -= M[i, b] * M[i, a]
    return n


@helper()
def _small_solve(M, n, y):
    """Overwrite M[y, :n] with (Uᵀ U)⁻¹ M[y, :n], where U is the upper triangle of M."""
    for i in range(n):
        M[y, i] /= M[i, i]
        for a in range(i + 1, n):
            M[y, a] -= M[i, a] * M[y, i]
    for i in range(n - 1, -1, -1):
        for a in range(i + 1, n):
            M[y, i] -= M[i, a] * M[y, a]
        M[y, i] /= M[i, i]

"""Leverages of the observations of a row.

At the solution of a row, with fixed signs, the fitted value of observation j changes with the
observed value by its leverage h_j = v_j w_j b_jᵀ H⁻¹ b_j. Without the observation, at the same
ridge, the residual would be r_j / (1 − h_j). The sum of the leverages is the number of degrees of
freedom of the row.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from fastemf.kernels.compilation import unit
from fastemf.kernels.problem import FREEDOM, NOT_FINITE, WEIGHT

DEPENDENT = 4.0  # times k eps: relative size of a pivot that counts as zero


@unit()
def leverages(l, i, sweep, batch):
    """Report Σ h and Σ v w of a row that was evaluated with curvature, and optionally each h.

    With weights v one unit of an observation, min(v, 1), is left out at a time, so that a weight
    of two is equivalent to repeating the observation. Σ h is over all units.
    """
    indptr, indices, other = sweep.rows.indptr, sweep.rows.indices, sweep.problem.other
    ridge, gram, T, stats = batch.ridge, batch.gram, batch.triangle, sweep.reports.stats
    w, weights, out = batch.w, sweep.rows.weights, sweep.reports.leverages
    q, top, at, first = ridge.shape[1], l * batch.tall, batch.at[l], indptr[i]
    d = indptr[i + 1] - first
    # H = L Lᵀ, then L⁻¹, both in the lower triangle of T. Without a ridge H may be singular: a
    # coordinate that depends linearly on the previous ones is replaced by zeros.
    freedom = 0.0
    smallest = DEPENDENT * q * sweep.problem.eps
    for a in range(q):
        for b in range(a + 1):
            T[a, b] = gram[top + b, a]
        T[a, a] += ridge[l, a]
    for a in range(q):
        for b in range(a):
            total = T[a, b]
            for c in range(b):
                total -= T[a, c] * T[b, c]
            T[a, b] = total / T[b, b] if T[b, b] > 0 else 0.0
        total = whole = T[a, a]
        for c in range(a):
            total -= T[a, c] * T[a, c]
        if total > smallest * whole:
            T[a, a] = sqrt(total)
            freedom += 1
        elif total <= smallest * whole:
            for c in range(a + 1):
                T[a, c] = 0.0
        else:
            sweep.reports.status[i] = NOT_FINITE
            return
    for a in range(q):
        if T[a, a] > 0:
            T[a, a] = 1 / T[a, a]
        # Row a of L⁻¹ replaces row a of L, with contiguous access to the rows above it.
        for c in range(a):
            below = T[a, c]
            T[a, c] = 0.0
            for b in range(c + 1):
                T[a, b] += below * T[c, b]
        for b in range(a):
            T[a, b] *= -T[a, a]
    # Σ h = tr(H⁻¹ (H − ridge)).
    for a in range(q):
        total = 0.0
        for b in range(a + 1):
            total += ridge[l, b] * T[a, b] * T[a, b]
        freedom -= total
    weight = 0.0
    for o in range(at, at + d):
        weight += w[o]
    stats[i, FREEDOM] = freedom
    stats[i, WEIGHT] = weight
    if out.size == 0:
        return
    for e in range(d):
        square = 0.0
        for a in range(q):
            total = 0.0
            for c in range(a + 1):
                total += T[a, c] * other[indices[first + e], c]
            square += total * total
        unit_weight = 1.0
        if weights.size and weights[first + e] > 1:
            unit_weight = 1 / np.float64(weights[first + e])
        out[first + e] = unit_weight * w[at + e] * square

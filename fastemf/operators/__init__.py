"""Linear maps A from m × n matrices to p measurements, b_i = <A_i, M>.

All operators have the methods of `Operator`, which take a matrix by its factors, M = X Yᵀ. The
parameter `side` selects a factor: 0 for X, 1 for Y.

| operator | A_i |
|---|---|
| `Gaussian`, `Rademacher` | random, never stored; they have the restricted isometry property |
| `Dense` | all entries stored |
| `Sparse` | few entries each |
| `Entries` | one entry each: completion as linear measurements |
| `RankOne` | u_i v_iᵀ |
| `Linear` | computed by a scipy linear operator |
"""

from __future__ import annotations

from fastemf.operators.kernel_operator import Dense, Entries, Gaussian, Rademacher, Sparse
from fastemf.operators.linear import Linear, RankOne
from fastemf.operators.operator import Operator

__all__ = ["Dense", "Entries", "Gaussian", "Linear", "Operator", "Rademacher", "RankOne", "Sparse"]

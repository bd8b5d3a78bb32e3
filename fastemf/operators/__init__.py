"""Linear maps A from m × n matrices to p measurements, b_i = <A_i, M>.

All answer the same few questions (`Operator`) about a matrix that is given by its factors.
`side` says which factor is asked about: 0 for X, whose rows are those of the matrix, 1 for Y.

| operator | its A_i |
|---|---|
| `Gaussian`, `Rademacher` | random, never stored; they have the restricted isometry property |
| `Dense` | stored, every entry |
| `Sparse` | stored, few entries each |
| `Entries` | one entry each: completion as linear measurements |
| `RankOne` | u_i v_iᵀ |
| `Linear` | whatever a linear operator of scipy computes |
"""

from __future__ import annotations

from fastemf.operators.dense import Dense
from fastemf.operators.drawn import Gaussian, Rademacher
from fastemf.operators.linear import Linear
from fastemf.operators.operator import Operator
from fastemf.operators.rank_one import RankOne
from fastemf.operators.sparse import Entries, Sparse

__all__ = [
    "Dense",
    "Entries",
    "Gaussian",
    "Linear",
    "Operator",
    "Rademacher",
    "RankOne",
    "Sparse",
]

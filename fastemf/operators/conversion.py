"""Conversion of arrays, sparse matrices and linear operators to an `Operator`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

from fastemf.operators.kernel_operator import Dense, Sparse
from fastemf.operators.linear import Linear
from fastemf.operators.operator import CheckedOperator, Operator, check_adjoint
from fastemf.support.validation import check_shape


def as_operator(A: Any, shape: Any = None) -> Operator:
    """Convert A to an operator; sparse matrices and linear operators need `shape` (m, n)."""
    if isinstance(A, CheckedOperator):
        operator: Operator = A
    elif sp.issparse(A) or isinstance(A, LinearOperator):
        if shape is None:
            raise ValueError(
                f"shape must be given as (m, n) for a {type(A).__name__}: its columns are the "
                f"m * n entries of the matrix, row by row, got None for {A.shape[1]} columns"
            )
        return Sparse(A, shape) if sp.issparse(A) else Linear(A, shape)
    elif isinstance(A, Operator):
        operator = A
        check_adjoint(operator)
    elif isinstance(A, (np.ndarray, list)):
        operator = Dense(A)
    else:
        raise TypeError(
            "A must be an operator of fastemf.operators, an array (p, m, n), a scipy sparse matrix "
            f"or a LinearOperator (p, m * n), got {type(A).__name__}"
        )
    if shape is not None and check_shape(shape, "shape") != tuple(operator.shape[1:]):
        raise ValueError(f"shape must be A's {tuple(operator.shape[1:])}, got {shape}")
    return operator

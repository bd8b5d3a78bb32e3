"""Parameters and the score that the estimators of expectiles share."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import BaseEstimator

from fastemf.completion import complete
from fastemf.loss import expectile
from fastemf.metrics import expectile_skill
from fastemf.models.factorization import Factorization
from fastemf.solver.settings import Solver
from fastemf.support.arrays import Array


class CompletionParameters(BaseEstimator):
    """Parameters of an estimator that are parameters of `complete`."""

    def __init__(
        self, omega: float = 0.5, k: int = 2, *, reg: Any = "auto", intercepts: bool = False,
        init: Any = "spectral", tol: float = 1e-5, max_iter: int = 100,
        solver: str | Solver = "auto", random_state: Any = 0, n_jobs: int | None = -1,
    ) -> None:  # fmt: skip
        self.omega = omega
        self.k = k
        self.reg = reg
        self.intercepts = intercepts
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.random_state = random_state
        self.n_jobs: Any = n_jobs

    def _complete(self, R: Any, censored: Any = None) -> Self:
        parameters = self.get_params(deep=False)
        self.factorization_: Factorization = complete(R, censored=censored, **parameters)
        self.n_iter_ = self.factorization_.n_iter
        return self


def skill(values: Array, predicted: Any, omega: float, weights: Any = None) -> float:
    """Return the expectile skill relative to the best constant."""
    return expectile_skill(values, predicted, omega, expectile(values, omega, weights), weights)

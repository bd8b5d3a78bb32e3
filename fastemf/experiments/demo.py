"""The demonstration: three levels of the skewed matrix of the paper, on unobserved cells."""

from __future__ import annotations

import time

import numpy as np

from fastemf.completion import complete
from fastemf.datasets import make_skewed
from fastemf.loss import expectile
from fastemf.metrics import effective_omega, expectile_skill, relative_errors

LEVELS = (0.1, 0.5, 0.9)
WARM = 20  # rows and columns of a first fit that compiles all kernels; enough for tuning


def run(size: int, density: float, rank: int, seed: int, *, progress: bool = False) -> str:
    """Generate data, fit it, and return the output."""
    complete(np.eye(WARM) + 1, 0.5, 1, intercepts=True)
    data = make_skewed(size, size, rank=rank, density=density, random_state=seed)
    missing = np.ones((size, size), bool)
    missing[data.R.nonzero()] = False
    if not missing.any():
        raise ValueError(f"density must leave cells to predict, got {density:g}")
    rows, cols = np.nonzero(missing)
    truth, held_out = data.truth[missing], data.noisy[missing]
    lines = [
        f"{size} x {size} matrix of rank {rank} plus skewed noise (0.5 chi-squared, 3 degrees):",
        f"{data.R.nnz:,} cells observed, {truth.size:,} not. Errors on the unobserved cells:",
        "",
        "omega  median error  90 % error  relative loss  effective omega  sweeps  seconds",
    ]
    for omega in LEVELS:
        began = time.perf_counter()
        fit = complete(data.R, omega, rank, intercepts=True, progress=progress)
        seconds = time.perf_counter() - began
        predicted = fit.predict(rows, cols)
        error = relative_errors(truth, predicted).values
        constant = expectile(data.R.data, omega)
        ratio = 1 - expectile_skill(held_out, predicted, omega, constant)
        level = effective_omega(held_out - predicted)
        median, high = np.quantile(error, [0.5, 0.9])
        lines.append(
            f"{omega:5.2f}  {median:12.1%}  {high:10.1%}  {ratio:13.3f}  {level:15.2f}  "
            f"{fit.n_iter:6d}  {seconds:7.2f}"
        )
    lines += [
        "",
        "error: |prediction - noiseless value| / noiseless value. The noise is nonnegative, so the",
        "  low level is closest to the noiseless matrix; the high level follows the upper tail.",
        "relative loss: expectile loss on unobserved noisy cells / loss of the best constant.",
        "effective omega: level of the predictions on unobserved noisy cells.",
        "sweeps: of the final fit; seconds: including the tuning.",
    ]
    return "\n".join(lines)

"""Quantiles from expectile fits: out-of-fold features, pinball regression, coverage report."""

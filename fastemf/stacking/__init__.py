"""Quantiles from expectile fits: columns out of fold, their regression, and what it promises."""

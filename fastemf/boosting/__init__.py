"""Boosted trees on out-of-fold predictions: columns of cells, training, coverage report."""

"""Fits of linear measurements: the task, its start and regression, and restricted isometry."""

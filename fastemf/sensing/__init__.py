"""Linear measurements of a matrix: regression, restricted isometry, and the task."""

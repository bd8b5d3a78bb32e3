"""The HTML report of a model: one module per group of sections."""

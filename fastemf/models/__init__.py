"""Fitted models: their methods, results and files."""

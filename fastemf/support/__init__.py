"""Validation of parameters, warnings and atomic files."""

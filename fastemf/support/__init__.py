"""Checks of parameters, warnings and atomic files: what every room needs."""

"""Checks of parameters, warnings and atomic files, which every room needs."""

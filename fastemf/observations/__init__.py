"""Observed entries by row and by column."""

"""The hash of a cell, which decides to which sample it belongs, wherever its entries are kept."""

from __future__ import annotations

from fastemf.kernels.compilation import helper

__all__ = ["hash_of_cell", "is_in_sample"]

LOW = 0xFFFFFFFF
MULTIPLIER = 0x45D9F3B  # of 27 bits: a product with 32 of them stays within int64


@helper(exact=True)
def hash_of_cell(own, mark):
    """Hash the marks of a row and a column, of 32 random bits each, to 32; either way round."""
    z = (own + mark) & LOW
    z = ((z ^ (z >> 16)) * MULTIPLIER) & LOW
    z = ((z ^ (z >> 16)) * MULTIPLIER) & LOW
    return z ^ (z >> 16)


@helper(exact=True)
def is_in_sample(own, mark, first, span):
    """Tell whether a cell's hash is one of the `span` numbers from `first` on, in a circle."""
    return ((hash_of_cell(own, mark) - first) & LOW) < span

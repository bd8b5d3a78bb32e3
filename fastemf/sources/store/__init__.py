"""Stores: observations on disk, sorted by row and by column."""

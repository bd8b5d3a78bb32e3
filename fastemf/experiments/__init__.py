"""Experiments of the paper: ``fastemf reproduce NAME --out DIR``.

Each writes its figures (PNG, requires matplotlib), its numbers (CSV) and a self-contained report
(HTML).
"""

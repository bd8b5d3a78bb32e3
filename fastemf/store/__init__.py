"""Observations on disk, more than memory holds: build a store once, fit it block by block.

>>> import os, tempfile, fastemf
>>> path = os.path.join(tempfile.mkdtemp(), "log")
>>> log = fastemf.store.build(([0, 1, 1], [0, 2, 0], [1.5, 2.0, 4.0]), path)
>>> fastemf.complete(path, omega=0.1, k=1).shape
(2, 3)
"""

from __future__ import annotations

from fastemf.store.building import build
from fastemf.store.manifest import StoreError
from fastemf.store.reading import Store, read_block, verify
from fastemf.store.reading import open_store as open

__all__ = ["Store", "StoreError", "build", "open", "read_block", "verify"]

"""Collecting the test suite compiles nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.compiled
def test_collecting_compiles_nothing(tmp_path):
    here = Path(__file__).parent
    command = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "", here]
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=here.parent,
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]

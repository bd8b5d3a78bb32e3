"""A process that fits, saves, loads and predicts for a while keeps the size it has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

MINUTES = float(os.environ.get("FASTEMF_SOAK_MINUTES", "1"))


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.compiled
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_stays_flat():
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("soak.py")), str(60 * MINUTES)],
        # With one arena, what one thread frees another one may use.
        env=os.environ | {"MALLOC_ARENA_MAX": "1", "OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    size, objects = np.array(json.loads(done.stdout)).T
    print(f"{size.size} rounds: {size[0]} kB at first, {size[-1]} kB at last")
    assert size.size >= 12, "too few rounds to tell"
    third = size.size // 3  # the first is the warm-up: imports, kernels, pools
    before, after = np.median(size[third : 2 * third]), np.median(size[2 * third :])
    assert after <= 1.02 * before, f"{before:.0f} kB grew to {after:.0f} kB"
    before, after = np.median(objects[third : 2 * third]), np.median(objects[2 * third :])
    assert after <= 1.02 * before, f"{before:.0f} objects grew to {after:.0f}"

from __future__ import annotations

import os

import numba
import pytest
from hypothesis import HealthCheck, settings

INTERPRETED = bool(numba.config.DISABLE_JIT)

settings.register_profile(
    "fastemf",
    deadline=None,
    max_examples=15 if INTERPRETED else 60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("fastemf")


def pytest_collection_modifyitems(items):
    if INTERPRETED:
        skip = pytest.mark.skip(reason="needs compiled kernels")
        for item in items:
            if "compiled" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def data_folder():
    """Folder of the real data sets, or a skip."""
    from pathlib import Path

    folder = os.environ.get("FASTEMF_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FASTEMF_DATA does not name a folder")
    return Path(folder)

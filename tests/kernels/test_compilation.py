"""The disk cache of compiled code, and messages about compilation."""

import contextlib
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from interpreter import run_python

import fastemf
from fastemf.kernels import sweep

pytestmark = pytest.mark.compiled

PACKAGE = Path(fastemf.__file__).parent

FITS = """
import hashlib, warnings
import numpy as np, fastemf
warnings.simplefilter("ignore")
R = fastemf.datasets.make_skewed(90, 70, rank=3, density=0.4, random_state=5).R
for settings in ({"reg": 0.1}, {"reg": 0.1, "solver": "cg"}, {"reg": 0}):
    fit = fastemf.complete(R, 0.1, 6, max_iter=5, n_jobs=1, **settings)
    print(hashlib.sha256(fit.X.tobytes() + fit.Y.tobytes()).hexdigest())
"""


LARGEST_ENTRY = """
from fastemf.operators import Rademacher
print(abs(Rademacher(4, (5, 5), seed=0).to_dense()).max())
"""


def run(code, cache, folder=PACKAGE.parent):
    """Run code with the package from `folder`, the first entry of the path."""
    return run_python(code, folder=folder, NUMBA_CACHE_DIR=str(cache))


@pytest.mark.slow
@pytest.mark.subprocess
def test_an_edit_of_a_called_file_recompiles_a_kernel(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "fastemf", ignore=shutil.ignore_patterns("__pycache__"))
    cache = tmp_path / "cache"
    assert run(LARGEST_ENTRY, cache, tmp_path) == ["0.5"]
    kept = {path: path.stat().st_mtime_ns for path in cache.rglob("*.nbc")}
    assert kept
    assert run(LARGEST_ENTRY, cache, tmp_path) == ["0.5"]
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.nbc")} == kept  # loaded
    callee = tmp_path / "fastemf" / "kernels" / "random_entries.py"
    source = callee.read_text()
    assert source.count("plus = _bits(scale)") == 1
    callee.write_text(source.replace("plus = _bits(scale)", "plus = _bits(2.0 * scale)"))
    assert run(LARGEST_ENTRY, cache, tmp_path) == ["1.0"]


@pytest.mark.slow
@pytest.mark.subprocess
def test_results_do_not_depend_on_the_content_of_the_cache(tmp_path):
    loaded = run_python(FITS, folder=PACKAGE.parent)  # by the cache of all tests, if it is filled
    assert len(set(loaded)) == 3
    assert run(FITS, tmp_path) == loaded
    kept = sorted(tmp_path.rglob("*.nbi"))
    assert len(kept) > 6
    for path in kept[::2]:
        path.unlink()
    assert run(FITS, tmp_path) == loaded


NO_CACHE = {
    "another version of Numba": "del caching.IndexDataCacheFile",  # as if it were renamed
    "no writable folder": "caching.CacheImpl._locator_classes = []",
}


@pytest.mark.subprocess
@pytest.mark.parametrize("reason", NO_CACHE)
def test_kernels_compile_without_a_cache(reason, tmp_path):
    hidden = f"import numba.core.caching as caching\n{NO_CACHE[reason]}\n"
    assert run(hidden + LARGEST_ENTRY, tmp_path) == ["0.5"]
    assert not list(tmp_path.rglob("*.nbc"))


def at_a_terminal(cache, *command):
    """Run Python with standard error at a terminal; return its standard error and output."""
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, *command], env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        cwd=PACKAGE.parent, stdout=subprocess.PIPE, stderr=theirs, check=True, timeout=1800,
    )  # fmt: skip
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # Linux, when the other end is closed
        while part := os.read(ours, 1 << 16):
            text += part
    os.close(ours)
    return text.decode(), done.stdout.decode()


@pytest.mark.slow
@pytest.mark.subprocess
def test_compilation_is_announced_once_on_a_terminal(tmp_path):
    fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), 0.5, 1, reg=0.1)
    fit.save(tmp_path / "model.npz")
    (tmp_path / "pairs.csv").write_text("row,col\n0,1\n")
    files = [str(tmp_path / name) for name in ("model.npz", "pairs.csv")]
    code = "from fastemf.operators import Gaussian; Gaussian(4, (5, 5)).to_dense()"
    by_command = ["-m", "fastemf", "predict", *files, "--rows", "row", "--cols", "col"]
    for kernel, command in (("design", ["-c", code]), ("predict_cells", by_command)):
        first, out = at_a_terminal(tmp_path / "cache", *command)
        assert f"fastemf: compiling {kernel} for this machine ... " in first
        assert first.rstrip().endswith(" s")
        assert at_a_terminal(tmp_path / "cache", *command) == ("", out)
    assert out.startswith('"row","col","prediction"\n')


def test_blocks_without_memory_raise(monkeypatch):
    monkeypatch.setattr(sweep, "launch", lambda *args: None)
    message = r"not enough memory for the scratch arrays of a block, over [\d,]+"
    with pytest.raises(MemoryError, match=message):
        fastemf.complete(np.ones((3, 3)), 0.5, 1, init=(np.ones((3, 1)), np.ones((3, 1))))

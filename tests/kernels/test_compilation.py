"""What is compiled, what is kept of it, and what a terminal is told meanwhile."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastemf
from fastemf.kernels import sweep

pytestmark = pytest.mark.compiled

PACKAGE = Path(fastemf.__file__).parent

FITS = """
import hashlib, warnings
import numpy as np, fastemf
warnings.simplefilter("ignore")
R = fastemf.datasets.make_skewed(90, 70, rank=3, density=0.4, random_state=5).R
for settings in ({"intercepts": True}, {"solver": "cg"}, {"reg": 0}):
    fit = fastemf.complete(R, 0.1, 6, max_iter=5, n_jobs=1, **settings)
    print(hashlib.sha256(fit.X.tobytes() + fit.Y.tobytes()).hexdigest())
"""


def run(code, cache, folder=PACKAGE.parent):
    """Run code in a fresh interpreter with the package from `folder`; returns its lines."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        cwd=folder,  # which comes first on the path
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.subprocess
def test_an_edit_in_a_file_that_a_kernel_calls_is_seen(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "fastemf", ignore=shutil.ignore_patterns("__pycache__"))
    cache = tmp_path / "cache"
    code = """
from fastemf.operators import Rademacher
print(abs(Rademacher(4, (5, 5), seed=0).to_dense()).max())
"""
    assert run(code, cache, tmp_path) == ["0.5"]
    kept = {path: path.stat().st_mtime_ns for path in cache.rglob("*.nbc")}
    assert kept
    assert run(code, cache, tmp_path) == ["0.5"]
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.nbc")} == kept  # loaded
    callee = tmp_path / "fastemf" / "kernels" / "random_entries.py"
    source = callee.read_text()
    assert source.count("plus = _bits(scale)") == 1
    callee.write_text(source.replace("plus = _bits(scale)", "plus = _bits(2.0 * scale)"))
    assert run(code, cache, tmp_path) == ["1.0"]


@pytest.mark.subprocess
def test_bits_do_not_depend_on_what_the_cache_holds(tmp_path):
    full = run(FITS, tmp_path / "cache")
    assert len(set(full)) == 3
    kept = sorted((tmp_path / "cache").rglob("*.nbi"))
    assert len(kept) > 6
    for left_out in (kept[::2], kept[1::2]):
        half = tmp_path / "half"
        shutil.copytree(tmp_path / "cache", half)
        for path in left_out:
            (half / path.relative_to(tmp_path / "cache")).unlink()
        assert run(FITS, half) == full
        shutil.rmtree(half)
    assert run(FITS, tmp_path / "cache") == full


@pytest.mark.subprocess
def test_without_the_names_that_caching_needs_nothing_is_kept(tmp_path):
    hidden = """
import numba.core.caching
del numba.core.caching.IndexDataCacheFile  # as in a Numba that has renamed it
"""
    code = """
from fastemf.operators import Rademacher
print(abs(Rademacher(4, (5, 5), seed=0).to_dense()).max())
"""
    assert run(hidden + code, tmp_path) == ["0.5"]
    assert not list(tmp_path.rglob("*.nbc"))


def at_a_terminal(cache, *command):
    """Run Python with standard error at a terminal; returns what it wrote to that and to a pipe."""
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        cwd=PACKAGE.parent,
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=True,
        timeout=1800,
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # Linux says so when the other end is closed
            break
        if not part:
            break
        text += part
    os.close(ours)
    return text.decode(), done.stdout.decode()


@pytest.mark.subprocess
def test_a_terminal_is_told_of_compilation_once(tmp_path):
    code = "from fastemf.operators import Gaussian; Gaussian(4, (5, 5)).to_dense()"
    first, _ = at_a_terminal(tmp_path, "-c", code)
    assert "fastemf: compiling design for this machine ... " in first
    assert first.rstrip().endswith(" s")
    assert at_a_terminal(tmp_path, "-c", code) == ("", "")


@pytest.mark.subprocess
def test_the_shell_says_that_it_compiles_while_it_does(tmp_path):
    fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), 0.5, 1, reg=0.1)
    fit.save(tmp_path / "model.npz")
    (tmp_path / "pairs.csv").write_text("row,col\n0,1\n")
    files = [str(tmp_path / name) for name in ("model.npz", "pairs.csv")]
    command = ["-m", "fastemf", "predict", *files, "--rows", "row", "--cols", "col"]
    first, out = at_a_terminal(tmp_path / "cache", *command)
    assert "fastemf: compiling fill_cells for this machine ... " in first
    assert out.startswith('"row","col","prediction"\n')
    assert at_a_terminal(tmp_path / "cache", *command) == ("", out)


def test_rows_that_no_block_could_solve_for_want_of_memory_are_an_error(monkeypatch):
    monkeypatch.setattr(sweep, "launch", lambda *args: None)
    R = np.ones((3, 3))
    with pytest.raises(
        MemoryError, match=r"no memory for the scratch of a block of rows, over [\d,]+"
    ):
        fastemf.complete(R, 0.5, 1, init=(np.ones((3, 1)), np.ones((3, 1))))

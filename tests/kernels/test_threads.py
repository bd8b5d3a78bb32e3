"""Same bits for any threads, blocks and process; safe where Numba's thread layer is not."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import fastemf
from fastemf.kernels.threads import count_threads, side_by_side, single_threaded_blas
from fastemf.solver import blocks as engine_blocks

FIT = """
import hashlib, sys
import numpy as np, fastemf
import warnings; warnings.simplefilter("ignore")

def data():
    return fastemf.datasets.make_skewed(90, 70, rank=3, density=0.4, random_state=5).R

def digest(n_jobs, dtype=np.float64, **settings):
    R = data().astype(dtype)
    fit = fastemf.complete(R, 0.1, 5, max_iter=5, n_jobs=n_jobs, **settings)
    content = fit.X.tobytes() + fit.Y.tobytes() + fit.predict_block([1]).tobytes()
    content += fit.fold_in(R, n_jobs=n_jobs).X.tobytes()
    return hashlib.sha256(content).hexdigest()
"""


def run(code, **environment):
    """Run code after FIT in a fresh interpreter; returns its lines."""
    done = subprocess.run(
        [sys.executable, "-c", FIT + textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.subprocess
@pytest.mark.compiled
def test_bits_do_not_depend_on_threads_or_process():
    code = """
    for settings in ({}, {"intercepts": True}, {"reg": 0}, {"dtype": np.float32}):
        print(*(digest(n, **settings) for n in (1, 2, 4)))
    """
    four = run(code, NUMBA_NUM_THREADS="4")
    for i in range(0, len(four), 3):
        assert len(set(four[i : i + 3])) == 1
    assert len(set(four)) == 4
    again = run(code.replace("(1, 2, 4)", "(1, 1, 1)"), NUMBA_NUM_THREADS="1")
    assert again == four


@pytest.mark.parametrize("blocks", [1, 3, 50])
def test_bits_do_not_depend_on_blocks_or_launches(monkeypatch, blocks):
    R = fastemf.datasets.make_skewed(20, 15, rank=2, density=0.5, random_state=5).R
    expected = fastemf.complete(R, 0.1, 3, reg=0.01, max_iter=3, tol=1)
    monkeypatch.setattr(engine_blocks, "BLOCKS_PER_THREAD", blocks)
    monkeypatch.setattr(engine_blocks, "WORK_PER_LAUNCH", 300.0)
    fit = fastemf.complete(R, 0.1, 3, reg=0.01, max_iter=3, tol=1)
    np.testing.assert_array_equal(fit.X, expected.X)
    np.testing.assert_array_equal(fit.Y, expected.Y)


@pytest.mark.subprocess
@pytest.mark.compiled
@pytest.mark.parametrize("layer", ["workqueue", "default"])
def test_two_python_threads_at_once(layer):
    code = """
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(4) as pool:
        print(*pool.map(lambda _: digest(2), range(8)))
    """
    lines = run(code, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2")
    assert len(lines) == 8
    assert len(set(lines)) == 1


@pytest.mark.subprocess
@pytest.mark.compiled
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_works_after_its_parent_launched():
    code = """
    import multiprocessing
    if __name__ == "__main__":
        before = digest(2)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            children = pool.map(digest, [2, 1])
        print(before, *children, digest(2))
    """
    lines = run(code, NUMBA_NUM_THREADS="2")
    assert len(lines) == 4
    assert len(set(lines)) == 1


@pytest.mark.subprocess
@pytest.mark.compiled
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_first_runs_in_parallel_itself():
    code = """
    import multiprocessing
    from fastemf.kernels import threads
    def child(_):
        return digest(2), threads._serial
    with multiprocessing.get_context("fork").Pool(1) as pool:
        (print(*pool.map(child, [0])[0]))
    """
    lines = run(code, NUMBA_NUM_THREADS="2")
    assert lines[1] == "False"


@pytest.mark.subprocess
@pytest.mark.compiled
def test_interrupt_stops_soon_and_leaves_the_data():
    code = """
    import _thread, signal, threading, time
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    R = fastemf.datasets.make_skewed(1500, 1500, rank=5, density=0.5, random_state=5).R
    keep = R.data.copy(), R.indices.copy(), R.indptr.copy()
    digest(1)  # compiled
    threading.Timer(0.5, _thread.interrupt_main).start()
    try:
        fastemf.complete(R, 0.1, 40, reg=0.01, tol=0, max_iter=10**9, n_jobs=2)
    except KeyboardInterrupt:
        same = all(np.array_equal(a, b) for a, b in zip(keep, (R.data, R.indices, R.indptr)))
        print("interrupted", same)
    print(len({digest(1), digest(2)}))  # and the next fit is as good as the first
    """
    assert run(code, NUMBA_NUM_THREADS="2") == ["interrupted", "True", "1"]


@pytest.mark.subprocess
@pytest.mark.compiled
def test_interrupt_stops_a_tuning_whose_trials_are_side_by_side():
    code = """
    import _thread, signal, threading, time
    signal.signal(signal.SIGINT, signal.default_int_handler)
    R = fastemf.datasets.make_skewed(1000, 900, rank=5, density=0.1, random_state=5).R
    keep = R.data.copy()
    digest(2)  # compiled
    threading.Timer(0.3, _thread.interrupt_main).start()
    try:
        fastemf.complete(R, 0.1, 30, n_jobs=2)
    except KeyboardInterrupt:
        print("interrupted", np.array_equal(keep, R.data), threading.active_count())
    """
    assert run(code, NUMBA_NUM_THREADS="2") == ["interrupted", "True", "1"]


@pytest.mark.subprocess
@pytest.mark.compiled
def test_a_thread_that_outlives_the_main_one_can_tune():
    code = """
    import threading
    from concurrent.futures import thread  # which says that no more threads may begin
    def late():
        threading.main_thread().join()
        print(digest(2) == before)
    before = digest(2)
    threading.Thread(target=late).start()
    """
    assert run(code, NUMBA_NUM_THREADS="2") == ["True"]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_what_is_done_side_by_side_comes_in_order(n_threads):
    assert side_by_side(lambda n: n * n, range(20), n_threads) == [n * n for n in range(20)]
    assert side_by_side(str, iter([7]), n_threads) == ["7"]
    assert side_by_side(str, [], n_threads) == []


@pytest.mark.parametrize("n_threads", [1, 3])
def test_an_error_of_one_of_several_is_that_of_all(n_threads):
    def refuse_three(n):
        if n == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        side_by_side(refuse_three, range(5), n_threads)


@pytest.mark.compiled
def test_threads_side_by_side_have_the_surroundings_of_their_caller():
    def overflow(_):
        with single_threaded_blas():  # which would wait for ever for its caller's own
            limits = [
                blas["num_threads"] for blas in threadpool_info() if blas["user_api"] == "blas"
            ]
        return limits, float(np.exp(np.array([1e4]))[0])

    with np.errstate(over="ignore"):
        for limits, value in side_by_side(overflow, range(4), 2):
            assert limits == [1] * len(limits)
            assert value == np.inf
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
        side_by_side(overflow, range(2), 2)


@pytest.mark.subprocess
def test_importing_compiles_nothing_and_starts_no_threads():
    code = """
    print("numba" in sys.modules, "scipy" in sys.modules)
    import fastemf.completion, threading, numba
    import fastemf.kernels.measurements
    dispatchers = [f for name, m in list(sys.modules.items()) if name.startswith("fastemf.kernels")
                   for f in vars(m).values()
                   if hasattr(f, "signatures") and not isinstance(f, type)]
    compiled = sum(len(f.signatures) for f in dispatchers)
    print(len(dispatchers) > 10, compiled, threading.active_count())
    try:
        numba.threading_layer()
    except ValueError:
        print("no layer")
    """
    prelude = FIT.replace("import numpy as np, fastemf", "import fastemf")
    done = subprocess.run(
        [sys.executable, "-c", prelude.replace("np.float64", "None") + textwrap.dedent(code)],
        env={**os.environ, "NUMBA_DISABLE_JIT": "0"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["False", "False", "True", "0", "1", "no", "layer"], done.stderr


@pytest.mark.subprocess
@pytest.mark.compiled
def test_a_read_only_cache_is_no_obstacle(tmp_path):
    code = """
    import numba.core.caching as caching
    class Nowhere:
        @classmethod
        def from_function(cls, *args): return None
    caching.CacheImpl._locator_classes = [Nowhere]
    print(len(digest(1)))
    """
    prelude = FIT.replace("import numpy as np, fastemf", "import numpy as np")
    program = textwrap.dedent(code).split("print")
    done = subprocess.run(
        [sys.executable, "-c", program[0] + "import fastemf\n" + prelude + "print" + program[1]],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_NUM_THREADS": "1"},
    )
    assert done.stdout.split() == ["64"], done.stderr


def test_n_jobs_reads_as_in_scikit_learn():
    everything = count_threads(-1)
    assert count_threads(1) == count_threads(None) == 1
    assert count_threads(10**6) == everything
    assert count_threads(-everything) == count_threads(-1000) == 1
    with pytest.raises(ValueError, match="n_jobs must not be 0"):
        count_threads(0)
    with pytest.raises(TypeError, match=r"n_jobs must be an integer, got 1\.5"):
        count_threads(1.5)

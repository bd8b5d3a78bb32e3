"""Bitwise identical results for any threads, blocks and process; forks, interrupts, BLAS."""

import os
from textwrap import dedent

import numpy as np
import pytest
from interpreter import run_python
from threadpoolctl import threadpool_info

import fastemf
from fastemf.kernels.threads import count_threads, map_threads, single_threaded_blas
from fastemf.solver import half_sweep as engine_blocks

FIT = """
import hashlib, sys
import numpy as np, fastemf
import warnings; warnings.simplefilter("ignore")

def data():
    return fastemf.datasets.make_skewed(90, 70, rank=3, density=0.4, random_state=5).R

def digest(n_jobs, dtype=np.float64, reg="noise", **settings):
    R = data().astype(dtype)
    fit = fastemf.complete(R, 0.1, 5, reg=reg, max_iter=5, n_jobs=n_jobs, **settings)
    content = fit.X.tobytes() + fit.Y.tobytes() + fit.predict_block([1]).tobytes()
    content += fit.fold_in(R, n_jobs=n_jobs).X.tobytes()
    return hashlib.sha256(content).hexdigest()
"""


def run(code, *arguments, threads=2, **environment):
    """Run code after FIT in a new interpreter with some threads; return the words it prints."""
    environment["NUMBA_NUM_THREADS"] = str(threads)
    return run_python(FIT + dedent(code), *arguments, **environment)


@pytest.mark.subprocess
@pytest.mark.compiled
def test_bits_do_not_depend_on_threads_or_process():
    code = """
    for n_jobs in sys.argv[1:]:
        for settings in ({}, {"intercepts": True}, {"reg": 0}, {"dtype": np.float32}):
            print(digest(int(n_jobs), **settings))
        print(digest(int(n_jobs), reg="auto", intercepts=True))
    """
    words = run(code, 1, 4, threads=4)
    assert words[:5] == words[5:] == run(code, 1, threads=1)
    assert len(set(words)) == 5


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
@pytest.mark.parametrize(("layer", "reg"), [("workqueue", "noise"), ("default", "auto")])
def test_two_python_threads_at_once(layer, reg):
    code = """
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(4) as pool:
        print(*pool.map(lambda _: digest(2, reg=sys.argv[1]), range(4)))
    """
    lines = run(code, reg, NUMBA_THREADING_LAYER=layer)
    assert len(lines) == 4
    assert len(set(lines)) == 1


@pytest.mark.subprocess
@pytest.mark.compiled
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_children_work_before_and_after_a_launch_of_their_parent():
    code = """
    import multiprocessing
    from fastemf.kernels import threads
    def child(n_jobs):
        return digest(n_jobs), threads._serial
    fork = multiprocessing.get_context("fork")
    with fork.Pool(1) as pool:
        first = pool.map(child, [2])
    before = digest(2)
    with fork.Pool(2) as pool:
        later = pool.map(child, [2, 1])
    print(before, digest(2), *(word for pair in first + later for word in pair))
    """
    words = run(code)
    assert len({words[0], words[1], *words[2::2]}) == 1
    assert words[3::2] == ["False", "True", "True"]


@pytest.mark.subprocess
@pytest.mark.compiled
@pytest.mark.parametrize(
    ("density", "settings"),
    [(0.5, {"reg": 0.01, "tol": 0, "max_iter": 10**9}), (0.1, {})],
    ids=["fit", "parallel trials of the tuning"],
)
def test_an_interrupt_stops_a_fit_and_leaves_the_data_intact(density, settings):
    code = f"""
    import _thread, signal, threading
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    R = fastemf.datasets.make_skewed(1500, 1500, rank=5, density={density}, random_state=5).R
    keep = R.data.copy(), R.indices.copy(), R.indptr.copy()
    digest(2)  # compiled
    threading.Timer(0.5, _thread.interrupt_main).start()
    try:
        fastemf.complete(R, 0.1, 40, n_jobs=2, **{settings})
    except KeyboardInterrupt:
        same = all(np.array_equal(a, b) for a, b in zip(keep, (R.data, R.indices, R.indptr)))
        print("interrupted", same, threading.active_count())
    print(len({{digest(1), digest(2)}}))  # the next fits are correct
    """
    assert run(code) == ["interrupted", "True", "1", "1"]


@pytest.mark.subprocess
@pytest.mark.compiled
def test_a_thread_can_fit_after_the_main_thread_has_ended():
    code = """
    import threading
    from concurrent.futures import thread  # forbids new threads at exit
    def late():
        threading.main_thread().join()
        print(digest(2) == before)
    before = digest(2)
    threading.Thread(target=late).start()
    """
    assert run(code) == ["True"]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_map_threads_keeps_the_order_and_raises_errors(n_threads):
    assert map_threads(lambda n: n * n, range(20), n_threads) == [n * n for n in range(20)]
    assert map_threads(str, iter([7]), n_threads) == ["7"]
    assert map_threads(str, [], n_threads) == []
    with pytest.raises(ValueError, match="invalid literal"):
        map_threads(int, ["1", "2", "three", "4"], n_threads)


@pytest.mark.compiled
def test_map_threads_keeps_the_context_of_the_caller():
    def overflow(_):
        with single_threaded_blas():  # must not wait for the caller
            pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
            limits = [pool["num_threads"] for pool in pools]
        return limits, float(np.exp(np.array([1e4]))[0])

    with np.errstate(over="ignore"):
        for limits, value in map_threads(overflow, range(4), 2):
            assert limits == [1] * len(limits)
            assert value == np.inf
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
        map_threads(overflow, range(2), 2)


@pytest.mark.subprocess
def test_importing_compiles_nothing_and_starts_no_threads():
    code = """
    import sys, fastemf
    print("numba" in sys.modules, "scipy" in sys.modules)
    import fastemf.completion, threading, numba
    optional = ("operators", "reporting", "sources.cluster", "sources.store", "models.file")
    print(any(name.startswith(tuple(f"fastemf.{o}" for o in optional)) for name in sys.modules))
    import fastemf.kernels.measurements
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("fastemf.kernels")]
    members = [f for module in modules for f in vars(module).values() if not isinstance(f, type)]
    dispatchers = [f for f in members if hasattr(f, "signatures")]
    compiled = sum(len(f.signatures) for f in dispatchers)
    print(len(dispatchers) > 10, compiled, threading.active_count())
    try:
        numba.threading_layer()
    except ValueError:
        print("no layer")
    """
    found = run_python(code, NUMBA_DISABLE_JIT="0")
    assert found == ["False", "False", "False", "True", "0", "1", "no", "layer"]


def test_n_jobs_has_the_meaning_of_scikit_learn():
    everything = count_threads(-1)
    assert count_threads(1) == count_threads(None) == 1
    assert count_threads(10**6) == everything
    assert count_threads(-everything) == count_threads(-1000) == 1

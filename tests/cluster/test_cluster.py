"""Fits on a Dask cluster: the bits of a fit in memory, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

import fastemf
from fastemf.cluster import source as cluster_source
from fastemf.cluster import workers as clusters
from fastemf.cluster.source import ClusterSide, ClusterSource
from fastemf.cluster.workers import Cluster, WorkersLostError
from fastemf.inputs import entries
from fastemf.observations import memory as observations
from fastemf.observations.memory import observe
from fastemf.solver import gathering
from fastemf.solver import path as tuned_path
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.judged import judged_cells
from fastemf.solver.opening import open_source
from fastemf.solver.records import Ridge
from fastemf.solver.sampling import CellSample, marks_of
from fastemf.solver.trial import Fitted, Trial

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.cluster,
    # Distributed's own, when its processes end.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

SETTINGS = {
    "default": {},
    "intercepts": {"intercepts": True},
    "intercepts alone": {"intercepts": True, "k": 0, "reg": "noise"},
    "paper": {"reg": 0, "orthogonalize": True},
    "plain ridge": {"reg": 0.3, "reg_scaling": "plain", "init": "random"},
    "conjugate gradients": {"reg": 0.1, "solver": "cg", "omega": 0.9},
}


def local_cluster():
    return distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
    )


@pytest.fixture(scope="module")
def client():
    with local_cluster() as workers, distributed.Client(workers) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_left_behind(request):
    """After every fit, good or bad, the scheduler knows of no task and no data of it."""
    yield
    if "client" in request.fixturenames:
        client = request.getfixturevalue("client")
        for _ in range(1000):
            left = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))
            if not left:
                return
            time.sleep(0.1)
        pytest.fail(f"left on the cluster: {left}")


def triplets(m=60, n=40, size=900, seed=0):
    """Skewed values with repeated cells, an empty row and an empty column."""
    rng = np.random.default_rng(seed)
    rows, cols = rng.integers(0, m - 1, size), rng.integers(0, n - 1, size)
    truth = rng.random((m, 2)) @ rng.random((2, n))
    return rows, cols, truth[rows, cols] + 0.2 * rng.gamma(1.0, size=size)


def build(folder, entries, **settings):
    path = folder / "store"
    fastemf.store.build(entries, path, **settings)
    return path


def quietly(*args, **settings):
    """Fit, at the noise-following ridge unless told otherwise: a tuned fit is many fits."""
    settings.setdefault("reg", "noise")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # gaps, and too few sweeps
        return fastemf.complete(*args, **settings)


def assert_same_bits(fit, reference):
    for name in ("X", "Y", "row_intercepts", "col_intercepts", "unseen_rows", "unseen_cols"):
        np.testing.assert_array_equal(getattr(fit, name), getattr(reference, name), strict=True)
    assert repr([replace(record, seconds=0.0) for record in fit.history]) == repr(
        [replace(record, seconds=0.0) for record in reference.history]
    )  # NaN is not equal to itself
    for name in ("reg", "intercept_reg", "mu", "shift", "scale", "family", "tuning", "converged"):
        assert getattr(fit, name) == getattr(reference, name)
    for name in ("constant", "column", "both", "median", "ridge", "rows", "cols"):
        ours, theirs = (getattr(one.training, name) for one in (fit, reference))
        np.testing.assert_array_equal(ours, theirs, strict=True)


# --- the same bits --------------------------------------------------------------------------


def test_quantiles_are_those_of_memory(client, tmp_path):
    entries = triplets()
    path = build(tmp_path, entries, shape=(60, 40))
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # gaps
        memory = fastemf.complete_quantiles(entries, (0.5, 0.9), 2, shape=(60, 40))
        there = fastemf.complete_quantiles(path, (0.5, 0.9), 2, client=client)
    every = np.arange(60)
    np.testing.assert_array_equal(there.predict_block(every), memory.predict_block(every))
    assert there.promises == memory.promises


@pytest.mark.parametrize("name", SETTINGS)
def test_a_store_gives_the_bits_of_memory(name, client, tmp_path):
    data = triplets()
    settings = {"omega": 0.2, "k": 3, "max_iter": 3, **SETTINGS[name]}
    reference = quietly(data, shape=(60, 40), **settings)
    path = build(tmp_path, data, shape=(60, 40))
    assert_same_bits(quietly(path, client=client, **settings), reference)


@pytest.mark.parametrize("name", ["intercepts", "plain ridge"])
def test_a_store_that_was_appended_to_gives_the_bits_of_memory(name, client, tmp_path):
    days = [triplets(seed=0), triplets(70, 45, 300, seed=1), triplets(size=200, seed=2)]
    path = build(tmp_path, days[0], shape=(60, 40))
    for day in days[1:]:
        fastemf.store.append(path, day)
    together = tuple(map(np.concatenate, zip(*days, strict=True)))
    settings = {"omega": 0.2, "k": 3, "max_iter": 3, **SETTINGS[name]}
    reference = quietly(together, **settings)
    assert_same_bits(quietly(path, client=client, **settings), reference)


def test_a_store_is_what_it_was_when_it_was_opened(client, tmp_path):
    data = triplets()
    opened = fastemf.store.open(build(tmp_path, data, shape=(60, 40)))
    fastemf.store.append(opened.path, triplets(70, 45, seed=1))
    reference = quietly(data, 0.2, 3, shape=(60, 40), max_iter=3)
    assert_same_bits(quietly(opened, 0.2, 3, max_iter=3, client=client), reference)


def stepped(m=60, n=40, size=1500):
    """Values that jump where levels of row and column do: a table fits what factors leave."""
    rng = np.random.default_rng(0)
    rows, cols = rng.integers(0, m - 1, size), rng.integers(0, n - 1, size)
    above = rng.random(m)[rows] + rng.random(n)[cols] > 1.2
    return rows, cols, 3.0 * above + 0.1 * rng.gamma(1.0, size=size)


@pytest.fixture
def rounds(monkeypatch):
    """Count how often the workers are asked."""
    asked = []
    run = Cluster.run

    def counting(self, *args):
        asked.append(args[0])
        return run(self, *args)

    monkeypatch.setattr(Cluster, "run", counting)
    return asked


def assert_same_tuned(fit, reference):
    assert_same_bits(fit, reference)
    for one, other in zip(fit.axes, reference.axes, strict=True):
        assert (one.noise is None) == (other.noise is None)
        if one.noise is not None:
            assert one.noise.level == other.noise.level
            np.testing.assert_array_equal(one.noise.variances, other.noise.variances)
        assert (one.levels is None) == (other.levels is None)
        if one.levels is not None:
            np.testing.assert_array_equal(one.levels.values, other.levels.values)
            for mine, theirs in zip(fit.tables, reference.tables, strict=True):
                np.testing.assert_array_equal(mine.values, theirs.values)


@pytest.mark.compiled
@pytest.mark.parametrize("weighted", [False, True])
def test_a_small_tuned_fit_has_the_bits_of_memory(weighted, client, rounds, tmp_path):
    data = stepped()
    weights = np.arange(1, 1501) / 500 if weighted else None
    settings = {"omega": 0.5, "k": 1, "reg": "auto", "intercepts": True}
    reference = quietly(data, shape=(60, 40), weights=weights, **settings)
    assert reference.rows.levels is not None
    path = build(tmp_path, data, shape=(60, 40), weights=weights)
    assert_same_tuned(quietly(path, **settings), reference)
    assert_same_tuned(quietly(path, client=client, **settings), reference)
    # Sums over all values, the blocks once, and the sweeps of the last fit.
    assert len(rounds) < 40 + 2 * reference.n_iter


@pytest.mark.compiled
def test_a_tuned_fit_of_a_sample_has_the_bits_of_memory(client, rounds, monkeypatch, tmp_path):
    monkeypatch.setattr(gathering, "AT_HAND", 0)
    monkeypatch.setattr(tuned_path, "SAMPLED", 700)
    monkeypatch.setattr(tuned_path, "FEW", 500)
    data = stepped()
    settings = {"omega": 0.5, "k": 1, "reg": "auto", "max_iter": 3}
    reference = quietly(data, shape=(60, 40), **settings)
    path = build(tmp_path, data, shape=(60, 40))
    assert_same_tuned(quietly(path, client=client, **settings), reference)
    assert len(rounds) < 100


@pytest.mark.slow  # more than come to hand stay with the workers, who are asked thousands of times
def test_a_tuned_fit_has_the_bits_of_memory(client, monkeypatch, tmp_path):
    monkeypatch.setattr(gathering, "AT_HAND", 0)
    data = triplets(size=420)
    settings = {"omega": 0.5, "k": 1, "reg": "auto", "max_iter": 3}
    reference = quietly(data, shape=(60, 40), **settings)
    assert reference.tuning.steps
    path = build(tmp_path, data, shape=(60, 40))
    assert_same_bits(quietly(path, client=client, **settings), reference)
    assert len(reference.unseen_rows) == 1


def test_cells_set_aside(client, tmp_path):
    """All that tables need beside half-sweeps and tallies, which every tuned fit has."""
    data = triplets()
    path = build(tmp_path, data, shape=(60, 40))

    def picked(source):
        engine = CompletionEngine(source, 0.2, mu=0.3, n_threads=1)
        marks = marks_of(engine.observations, np.random.default_rng(1))
        sample = CellSample.share(marks, 0.4)
        trial = Trial(engine.view(sample.rest()), engine.view(sample))
        fit = trial_fit(trial, np.random.default_rng(0))
        scales = [tuple(np.arange(1.0, size + 1) for size in (60, 40))]
        return judged_cells([trial], [fit], [fit], scales, marks)

    expected = picked(observe(data, shape=(60, 40)))
    assert expected.values.size > 100
    with open_source(path, None, None, (None, None, None), client, 1) as source:
        found = picked(source)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def trial_fit(trial, rng):
    """Any factors, as a fit of a trial."""
    factors = rng.random((60, 3)), rng.random((40, 3))
    nothing = tuple(np.zeros(len(factor)) for factor in factors)
    return Fitted(trial.fitted, factors, Ridge(0.1, 0.1), nothing, nothing, 0.5)


def test_weights_and_float32(client, tmp_path):
    rows, cols, values = triplets()
    values, weights = values.astype(np.float32), np.arange(1, 901) / 100
    settings = {"omega": 0.7, "k": 2, "max_iter": 3, "intercepts": True}
    reference = quietly((rows, cols, values), weights=weights, **settings)
    path = build(tmp_path, (rows, cols, values), weights=weights)
    fit = quietly(fastemf.store.open(path), client=client, n_jobs=1, **settings)
    assert fit.X.dtype == np.float32
    assert_same_bits(fit, reference)


def test_a_start_and_a_callback(client, tmp_path):
    data = triplets()
    path = build(tmp_path, data)
    first = quietly(data, 0.3, 2, max_iter=2)
    seen = []
    fit = quietly(
        path, 0.3, 2, init=first, client=client,
        callback=lambda record: seen.append(record) or len(seen) == 2,
    )  # fmt: skip
    assert seen == list(fit.history)
    assert len(seen) == 2
    assert_same_bits(fit, quietly(data, 0.3, 2, init=first, callback=lambda r: r.sweep == 2))


def test_an_interrupted_fit_goes_on_anywhere(client, tmp_path):
    data = triplets()
    path = build(tmp_path, data, shape=(60, 40))
    settings = {"omega": 0.2, "k": 2, "tol": 0, "max_iter": 6, "intercepts": True}
    reference = quietly(data, shape=(60, 40), **settings)
    kept = {"checkpoint": tmp_path / "state.npz", "checkpoint_every": 1, "resume": True}
    quietly(path, client=client, **kept, **(settings | {"max_iter": 2}))
    quietly(path, **kept, **(settings | {"max_iter": 4}))
    assert_same_bits(quietly(path, client=client, **kept, **settings), reference)
    (tmp_path / "other").mkdir()
    other = build(tmp_path / "other", (*data[:2], data[2][::-1]), shape=(60, 40))
    with pytest.raises(fastemf.CheckpointError, match="of other data"):
        quietly(other, client=client, **kept, **settings)


def test_levels_and_validation(client, tmp_path):
    data = triplets()
    path = build(tmp_path, data, shape=(60, 40))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        settings = {"omegas": (0.2, 0.8), "k": 2, "max_iter": 3, "reg": "noise"}
        levels = fastemf.complete_levels(path, client=client, **settings)
        reference = fastemf.complete_levels(data, shape=(60, 40), **settings)
    for fit, other in zip(levels.fits, reference.fits, strict=True):
        assert_same_bits(fit, other)
    held = (data[0][:50], data[1][:50], data[2][:50] + 1)
    settings = {"omega": 0.5, "k": 2, "max_iter": 5, "validation": held}
    fit = quietly(path, client=client, **settings)
    assert_same_bits(fit, quietly(data, shape=(60, 40), **settings))
    with pytest.raises(TypeError, match=r"validation must be entries .* got the share 0\.2"):
        fastemf.complete(path, 0.5, 2, client=client, validation=0.2)


def test_fewer_rows_than_blocks(client, tmp_path):
    R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0]])
    data = (*np.nonzero(~np.isnan(R)), R[~np.isnan(R)])
    fit = quietly(build(tmp_path, data), 0.5, 1, max_iter=2, client=client)
    assert_same_bits(fit, quietly(R, 0.5, 1, max_iter=2))


NAMES = {"rows": "user", "cols": "item", "values": "seconds"}


def write_parts(folder, entries, cuts, **others):
    """Parquet files with the entries between the cuts."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = dict(zip(NAMES.values(), entries, strict=True)) | others
    paths = []
    for first, last in pairwise(cuts):
        paths.append(folder / f"{len(paths)}.parquet")
        parquet.write_table(
            pa.table({name: array[first:last] for name, array in columns.items()}), paths[-1]
        )
    return paths


def test_parts_give_the_bits_of_memory(client, tmp_path):
    data = triplets()
    weights = np.arange(1, 901) / 100
    settings = {"omega": 0.2, "k": 3, "max_iter": 2, "intercepts": True, "shape": (60, 40)}
    # Two of the parts are empty; the columns are positions.
    paths = write_parts(tmp_path, data, [0, 0, 1, 450, 450, 900], times=weights)
    fit = quietly(paths, client=client, weights="times", **NAMES, **settings)
    assert_same_bits(fit, quietly(data, weights=weights, **settings))
    assert fit.row_labels is None


def test_labels_of_parts(client, tmp_path):
    pa = pytest.importorskip("pyarrow")
    rows, cols, values = triplets()
    labelled = np.char.add("u", rows.astype(str)), cols[::-1] - 20, values
    table = pa.table(dict(zip(NAMES.values(), labelled, strict=True)))
    reference = quietly(table, 0.2, 2, max_iter=2, **NAMES)
    paths = write_parts(tmp_path, labelled, [0, 300, 300, 900])
    fit = quietly(paths, 0.2, 2, max_iter=2, client=client, **NAMES)
    assert_same_bits(fit, reference)
    assert (fit.row_labels, fit.col_labels) == (reference.row_labels, reference.col_labels)
    fastemf.store.build(paths, tmp_path / "store", **NAMES)
    stored = quietly(tmp_path / "store", 0.2, 2, max_iter=2, client=client)
    assert_same_bits(stored, reference)
    assert stored.row_labels == reference.row_labels
    # As they are written in a CSV file: integers where all parts have integers.
    for number, part in enumerate([(300, 900), (0, 300)]):
        lines = [
            f"{u},{i},{s!r}"
            for u, i, s in zip(*(x[slice(*part)].tolist() for x in labelled), strict=True)
        ]
        (tmp_path / f"{number}.csv").write_text("\n".join([",".join(NAMES.values()), *lines]))
    csv = [tmp_path / "1.csv", tmp_path / "0.csv"]
    fit = quietly(csv, 0.2, 2, max_iter=2, client=client, **NAMES)
    assert_same_bits(fit, reference)
    assert (fit.row_labels, fit.col_labels) == (reference.row_labels, reference.col_labels)


def test_a_dask_frame_gives_the_bits_of_memory(client):
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    rows, cols, values = triplets()
    values = values.astype(np.float32)
    table = pd.DataFrame({"other": "text", "item": cols, "user": rows, "seconds": values})
    frame = dd.from_pandas(table, npartitions=5)
    fit = quietly(
        frame[frame["user"] != 7], 0.8, 2, max_iter=2, shape=(60, 40), client=client, **NAMES
    )
    kept = rows != 7
    data = (rows[kept], cols[kept], values[kept])
    assert_same_bits(fit, quietly(data, 0.8, 2, max_iter=2, shape=(60, 40)))
    assert 7 in fit.unseen_rows


class Inline:
    """A cluster that is this process."""

    def run(self, task, blocks, shared, own, *args):
        return [
            task(block, shared, mine, *args, 1) for block, mine in zip(blocks, own, strict=True)
        ]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("cuts", [[0, 60], [0, 1, 2, 3, 30, 31, 60], [0, 20, 40, 60]])
def test_sums_do_not_depend_on_the_blocks(cuts, weighted, monkeypatch):
    # 0.1 + 0.2 is not 0.3: sums of other stretches, or in another order, have other bits.
    monkeypatch.setattr(entries, "PART", 7)
    monkeypatch.setattr(cluster_source, "PART", 7)
    v = np.arange(1.0, 901.0) if weighted else None
    source = observe(triplets(), weights=v, shape=(60, 40))
    side = source.by_row
    blocks = [
        observations.Side(
            side.indptr[first : last + 1] - side.indptr[first],
            *(
                array[side.indptr[first] : side.indptr[last]]
                for array in (side.indices, side.values, side.weights)
            ),
            side.mass[first:last],
        )
        for first, last in pairwise(cuts)
    ]
    there = ClusterSide(Inline(), blocks, np.array(cuts), side.indptr, side.mass, side.dtype)
    remote = ClusterSource(source.shape, there, there)
    assert remote.rms(0.3) == source.rms(0.3)
    assert remote.expectile(0.1) == source.expectile(0.1)


# --- lost workers ---------------------------------------------------------------------------


class Killer:
    """A callback that kills worker `when[sweep]` after that sweep, or amid the next."""

    def __init__(self, workers, client, when):
        self.workers, self.client, self.when = workers, client, when
        self.threads = []

    def __call__(self, record):
        if record.sweep in self.when:
            self.client.wait_for_workers(2, timeout=600)
            pid = list(self.workers.workers.values())[self.when[record.sweep]].pid
            delay = 0.0 if record.sweep % 2 else record.seconds / 2
            self.threads.append(threading.Timer(delay, os.kill, (pid, signal.SIGKILL)))
            self.threads[-1].start()


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("what", "when"),
    [
        ("store", {2: 0}),
        pytest.param("store", {1: 0, 4: 1, 6: 0, 7: 1}, marks=pytest.mark.slow),
        pytest.param("parts", {1: 1, 4: 0}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_killed_workers_leave_no_trace_in_the_bits(what, when, tmp_path):
    data = triplets(3000, 1000, 100_000)
    settings = {"omega": 0.1, "k": 8, "max_iter": max(when) + 2, "tol": 0, "intercepts": True}
    reference = quietly(data, **settings)
    with local_cluster() as workers, distributed.Client(workers) as client:
        killer = Killer(workers, client, when)
        if what == "store":
            R, names = build(tmp_path, data), {}
        else:
            R = write_parts(tmp_path, data, [0, 20_000, 70_000, 100_000])
            names = {**NAMES, "shape": reference.shape}
        fit = quietly(R, client=client, callback=killer, **names, **settings)
        for thread in killer.threads:
            thread.join()
    assert len(killer.threads) == len(when)
    assert_same_bits(fit, reference)


@pytest.mark.compiled
def test_lost_blocks_are_read_from_what_was_opened(tmp_path, monkeypatch):
    # Meanwhile observations are appended, and all segments merged into another.
    monkeypatch.setattr("fastemf.store.compaction.MOST", 2)
    data = triplets(3000, 1000, 100_000)
    settings = {"omega": 0.1, "k": 8, "max_iter": 4, "tol": 0}
    reference = quietly(data, **settings)
    path = build(tmp_path, data)
    with local_cluster() as workers, distributed.Client(workers) as client:
        killer = Killer(workers, client, {2: 0})

        def append_and_kill(record):
            if record.sweep <= 2:
                fastemf.store.append(path, triplets(3100, 1000, 50_000, seed=record.sweep))
            killer(record)

        fit = quietly(path, client=client, callback=append_and_kill, **settings)
        for thread in killer.threads:
            thread.join()
    assert len(killer.threads) == 1
    assert_same_bits(fit, reference)
    assert (path / "rows.values.npy").exists()
    del fit
    assert fastemf.store.append(path, triplets()).size == 200_900
    assert not (path / "rows.values.npy").exists()


def test_what_is_lost_is_sent_again(client, tmp_path, monkeypatch):
    data = triplets()
    path = build(tmp_path, data)
    send, direct = Cluster._send, []

    def failing(self, pieces):
        direct.append(self._direct_failures < clusters.DIRECT_ATTEMPTS)
        if len(direct) in (3, 4):
            monkeypatch.setattr(self.client, "scatter", unreachable)
        try:
            return send(self, pieces)
        finally:
            monkeypatch.undo()
            monkeypatch.setattr(Cluster, "_send", failing)

    def unreachable(*args, **settings):
        raise OSError("Timed out trying to connect")

    monkeypatch.setattr(Cluster, "_send", failing)
    fit = quietly(path, 0.2, 2, max_iter=2, client=client)
    assert_same_bits(fit, quietly(data, 0.2, 2, max_iter=2))
    # Past the scheduler until that failed twice, through it from then on.
    assert direct[:4] == [True] * 4
    assert not any(direct[4:])
    assert len(direct) > 5


def test_a_cluster_that_never_recovers(client, tmp_path, monkeypatch):
    path = build(tmp_path, triplets())

    def unreachable(*args, **settings):
        raise OSError("Timed out trying to connect")

    with monkeypatch.context() as patched:
        patched.setattr(client, "scatter", unreachable)
        with pytest.raises(WorkersLostError, match=r"lost 5 times.*Timed out trying to connect"):
            quietly(path, 0.2, 2, client=client)


def test_observations_that_are_cancelled(client, tmp_path):
    path = build(tmp_path, triplets())

    def cancel(record):
        client.cancel([distributed.Future(key, client) for key in list(client.futures)])

    with pytest.raises(WorkersLostError, match="cancelled: was it restarted"):
        quietly(path, 0.2, 2, client=client, callback=cancel)


def test_no_worker_left(tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "PATIENCE", 0.5)
    monkeypatch.setattr(clusters, "POLL", 0.2)
    path = build(tmp_path, triplets())
    with (
        distributed.LocalCluster(
            n_workers=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as workers,
        distributed.Client(workers) as client,
    ):
        with pytest.raises(WorkersLostError, match="no worker is left"):
            quietly(path, 0.2, 2, client=client, callback=lambda _: workers.scale(0))
        with pytest.raises(ValueError, match=r"client must have workers, got none"):
            quietly(path, 0.2, 2, client=client)


# --- bad input ------------------------------------------------------------------------------


def test_not_a_client(tmp_path):
    path = build(tmp_path, triplets())
    with pytest.raises(TypeError, match=r"client must be a distributed.Client or None, got str"):
        fastemf.complete(path, 0.5, 1, client="tcp://127.0.0.1:8786")


def test_a_closed_client(client, tmp_path):
    path = build(tmp_path, triplets())
    other = distributed.Client(client.scheduler.address)
    other.close()
    with pytest.raises(ValueError, match=r"client must be connected.*closed"):
        fastemf.complete(path, 0.5, 1, client=other)


def test_distributed_is_absent(client, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"fastemf\[dask\]"):
        fastemf.complete(build(tmp_path, triplets()), 0.5, 1, client=client)


def test_settings_are_checked_before_anything_is_sent(client, tmp_path):
    with pytest.raises(ValueError, match="omega must lie strictly between 0 and 1"):
        fastemf.complete(tmp_path / "nothing", 2, 1, client=client)
    path = build(tmp_path, triplets())
    with pytest.raises(ValueError, match="k must be at most"):
        fastemf.complete(path, 0.5, 1000, client=client)
    with pytest.raises(ValueError, match="shape must not be given beside a store"):
        fastemf.complete(path, 0.5, 1, shape=(9, 9), client=client)
    with pytest.raises(ValueError, match="n_jobs must not be 0"):
        fastemf.complete(path, 0.5, 1, n_jobs=0, client=client)


def test_data_in_memory(client):
    with pytest.raises(TypeError, match=r"R must be a store.*got csr_matrix.*store\.build"):
        fastemf.complete(sp.csr_matrix(np.eye(3)), 0.5, 1, client=client)


def test_a_folder_that_workers_do_not_see(client, tmp_path):
    store = fastemf.store.open(build(tmp_path, triplets()))
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"every worker sees.*no such folder \(worker tcp"):
        fastemf.complete(store, 0.5, 1, client=client)
    build(tmp_path, triplets(seed=1))
    with pytest.raises(ValueError, match="another store there"):
        fastemf.complete(store, 0.5, 1, client=client)


def test_a_store_that_is_damaged_meanwhile(client, tmp_path):
    path = build(tmp_path, triplets())

    def damage(record):
        raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        quietly(path, 0.5, 2, client=client, callback=damage)
    indices = path / "cols.indices.npy"
    content = bytearray(indices.read_bytes())
    content[-4:] = b"\xff\xff\xff\x7f"
    indices.write_bytes(content)
    with pytest.raises(fastemf.store.StoreError, match=r"cols.indices.npy is damaged"):
        quietly(path, 0.5, 2, client=client)


ODD = {
    "no column 'seconds'": {"seconds": None},
    "one type in all parts, got float32 in .*odd.parquet and float64": {"seconds": np.float32},
    "rows of .*must hold integers|must hold integers": {"user": str},
    r"must be finite.*inf at entry 0 of .*odd.parquet": {"seconds": lambda s: s * np.inf},
    "must not be negative": {"item": lambda i: -1 - i},
    "must be below 40": {"item": lambda i: i + 1000},
    "weights must be finite and positive": {"times": lambda w: -w},
}


@pytest.mark.parametrize("message", ODD)
def test_a_part_that_cannot_be_fitted(message, client, tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    data, times = triplets(), np.ones(900)
    paths = write_parts(tmp_path, data, [0, 450, 900], times=times)
    columns = dict(zip(NAMES.values(), data, strict=True)) | {"times": times}
    for name, change in ODD[message].items():
        column = columns.pop(name)
        if change is not None:
            columns[name] = column.astype(change) if isinstance(change, type) else change(column)
    parquet.write_table(pa.table(columns), tmp_path / "odd.parquet")
    with pytest.raises((ValueError, TypeError, IndexError), match=message):
        quietly(
            [tmp_path / "odd.parquet", *paths], 0.5, 1, client=client, shape=(60, 40),
            weights="times", **NAMES,
        )  # fmt: skip


def test_labels_of_two_kinds(client, tmp_path):
    rows, cols, values = triplets()
    for name, users in (("a", rows), ("b", rows.astype(str))):
        (tmp_path / name).mkdir()
        write_parts(tmp_path / name, (users, cols, values), [0, 900])
    paths = [tmp_path / "a" / "0.parquet", tmp_path / "b" / "0.parquet"]
    with pytest.raises(TypeError, match="column 'user' must hold labels of one kind, got int64"):
        quietly(paths, 0.5, 1, client=client, **NAMES)


def test_only_empty_parts(client, tmp_path):
    paths = write_parts(tmp_path, triplets(), [0, 0, 0])
    with pytest.raises(ValueError, match="at least one observation, got none in 2 parts"):
        quietly(paths, 0.5, 1, client=client, **NAMES)


def test_columns_must_be_named(client, tmp_path):
    paths = write_parts(tmp_path, triplets(), [0, 900])
    with pytest.raises(TypeError, match="cols must name a column of the table, got None"):
        fastemf.complete(paths, 0.5, 1, client=client, rows="user", values="seconds")
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.read_parquet([str(path) for path in paths])
    with pytest.raises(ValueError, match="the Dask DataFrame has no column 'users'"):
        fastemf.complete(frame, 0.5, 1, client=client, **NAMES | {"rows": "users"})


def test_files_that_workers_do_not_see(client, tmp_path):
    paths = [*write_parts(tmp_path, triplets(), [0, 900]), tmp_path / "nowhere.parquet"]
    with pytest.raises(ValueError, match=r"nowhere.parquet: every worker must see.*\(worker tcp"):
        fastemf.complete(paths, 0.5, 1, client=client, **NAMES)


def test_workers_without_the_package():
    class Bare:
        def nthreads(self):
            return {"tcp://1": 1}

        def wait_for_workers(self, n, timeout):
            pass

        def run(self, *args, on_error):
            return {"tcp://1": ModuleNotFoundError("No module named 'fastemf'")}

    with pytest.raises(ModuleNotFoundError, match=r"every worker needs.*tcp://1 says: No module"):
        Cluster(Bare(), -1).check(str)


def test_workers_of_another_version():
    answer = clusters._answer("0.0.0", lambda: "")
    assert "needs this version of fastemf, 0.0.0, got" in answer
    assert clusters._answer(fastemf.__version__, lambda: "") == ""

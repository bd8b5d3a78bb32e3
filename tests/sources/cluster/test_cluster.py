"""Fits on a Dask cluster are bitwise identical to fits in memory, also when workers are lost."""

import os
import signal
import sys
import threading
import time
import warnings
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import parquet
from sources.comparisons import assert_equal_fits

import fastemf
from fastemf.sources import gathering
from fastemf.sources.cluster import workers as clusters
from fastemf.sources.cluster.workers import Cluster, WorkersLostError
from fastemf.tuning import ridge_path as tuned_path

distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")

pytestmark = [
    pytest.mark.cluster,
    # Distributed's own, when its processes end.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

SETTINGS = {
    "default": {},
    "intercepts": {"intercepts": True},
    "intercepts alone": {"intercepts": True, "k": 0, "reg": "noise"},
    "paper": {"reg": 0, "solver": fastemf.Solver(orthogonalize=True)},
    "plain ridge": {"reg": 0.3, "solver": fastemf.Solver(reg_scaling="plain"), "init": "random"},
    "conjugate gradients": {"reg": 0.1, "solver": "cg", "omega": 0.9},
}


def local_cluster():
    # By default a killed worker that takes 15 s to restart is given up.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})
    return distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
    )


@pytest.fixture(scope="module")
def client():
    with local_cluster() as workers, distributed.Client(workers) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_left_behind(request):
    """Check that no task and no data remain on the scheduler after a test."""
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


DATA = triplets()
SHAPE = (60, 40)


def build(folder, entries, **settings):
    return fastemf.store.build(entries, folder / "store", **settings).path


@pytest.fixture
def path(tmp_path):
    """A store of the data."""
    return build(tmp_path, DATA, shape=SHAPE)


def quietly(*args, **settings):
    """Fit without UserWarnings, by default with the noise-adaptive ridge."""
    settings.setdefault("reg", "noise")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # gaps, and too few sweeps
        return fastemf.complete(*args, **settings)


# --- the same bits --------------------------------------------------------------------------


def in_memory(**settings):
    return quietly(DATA, shape=SHAPE, **settings)


def test_quantiles_equal_those_in_memory(client, path):
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # gaps
        memory = fastemf.complete_quantiles(DATA, (0.5, 0.9), 2, shape=SHAPE)
        there = fastemf.complete_quantiles(path, (0.5, 0.9), 2, client=client)
    every = np.arange(60)
    np.testing.assert_array_equal(there.predict_block(every), memory.predict_block(every))
    assert there.coverage == memory.coverage


@pytest.mark.parametrize("form", ["store", "table", "dask"])
def test_side_features_equal_those_in_memory(form, client, tmp_path):
    rows, cols, values = DATA
    features = {"hour": np.arange(values.size) % 24, "zone": np.array(["a", "b"])[rows % 2]}
    log = pa.table({"i": rows, "j": cols, "v": values, **features})
    settings = {"features": ["hour", "zone"], "reg": 0.1, "max_iter": 3}
    names = {"rows": "i", "cols": "j", "values": "v"}
    if form == "store":
        given = {"R": build(tmp_path, log, columns=["zone", "hour"], **names)}
    elif form == "table":
        given = {"R": log, "store_path": tmp_path / "new", **names}
    else:
        frame = pytest.importorskip("dask.dataframe").from_pandas(log.to_pandas(), npartitions=2)
        given = {"R": frame, "store_path": tmp_path / "new", **names}
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        memory = fastemf.complete_quantiles(log, 0.5, 1, **names, **settings)
        there = fastemf.complete_quantiles(
            given.pop("R"), 0.5, 1, client=client, **given, **settings
        )
    np.testing.assert_array_equal(there.predict(log), memory.predict(log))
    assert there.coverage == memory.coverage


@pytest.mark.parametrize("name", SETTINGS)
def test_a_store_equals_memory(name, client, path):
    settings = {"omega": 0.2, "k": 3, "max_iter": 3, **SETTINGS[name]}
    assert_equal_fits(quietly(path, client=client, **settings), in_memory(**settings))


@pytest.mark.parametrize("name", ["intercepts", "plain ridge"])
def test_an_appended_store_equals_memory(name, client, path):
    days = [DATA, triplets(70, 45, 300, seed=1), triplets(size=200, seed=2)]
    for day in days[1:]:
        fastemf.store.append(path, day)
    together = tuple(map(np.concatenate, zip(*days, strict=True)))
    settings = {"omega": 0.2, "k": 3, "max_iter": 3, **SETTINGS[name]}
    assert_equal_fits(quietly(path, client=client, **settings), quietly(together, **settings))


def test_later_appends_are_not_visible(client, path):
    opened = fastemf.store.open(path)
    fastemf.store.append(path, triplets(70, 45, seed=1))
    settings = {"omega": 0.2, "k": 3, "max_iter": 3}
    assert_equal_fits(quietly(opened, client=client, **settings), in_memory(**settings))


def stepped(m=60, n=40, size=1500):
    """Values with steps in row and column effects, which a correction table can fit."""
    rng = np.random.default_rng(0)
    rows, cols = rng.integers(0, m - 1, size), rng.integers(0, n - 1, size)
    above = rng.random(m)[rows] + rng.random(n)[cols] > 1.2
    return rows, cols, 3.0 * above + 0.1 * rng.gamma(1.0, size=size)


@pytest.fixture
def rounds(monkeypatch):
    """Record the calls of `Cluster.run`."""
    asked = []
    run = Cluster.run

    def counting(self, *args):
        asked.append(args[0])
        return run(self, *args)

    monkeypatch.setattr(Cluster, "run", counting)
    return asked


@pytest.mark.compiled
@pytest.mark.parametrize("weighted", [False, True])
def test_a_small_tuned_fit_equals_memory(weighted, client, rounds, tmp_path):
    data, kept = stepped(), {"shape": SHAPE, "weights": None}
    if weighted:
        kept["weights"] = np.arange(1, 1501) / 500
    settings = {"omega": 0.5, "k": 1, "reg": "auto", "intercepts": True}
    reference = quietly(data, **kept, **settings)
    assert reference.rows.effects is not None
    path = build(tmp_path, data, **kept)
    assert_equal_fits(quietly(path, **settings), reference)
    assert_equal_fits(quietly(path, client=client, **settings), reference)
    # Sums over all values, one pass over the blocks, and the sweeps of the last fit.
    assert len(rounds) < 40 + 2 * reference.n_iter


@pytest.mark.compiled
def test_a_fit_tuned_on_a_sample_equals_memory(client, rounds, monkeypatch, tmp_path):
    monkeypatch.setattr(gathering, "MOST_GATHERED", 0)
    monkeypatch.setattr(tuned_path, "SAMPLED", 700)
    monkeypatch.setattr(tuned_path, "FEW", 500)
    settings = {"omega": 0.5, "k": 1, "reg": "auto", "max_iter": 3}
    path = build(tmp_path, stepped(), shape=SHAPE)
    reference = quietly(stepped(), shape=SHAPE, **settings)
    assert_equal_fits(quietly(path, client=client, **settings), reference)
    assert len(rounds) < 100


def test_weights_and_float32(client, tmp_path):
    data, weights = (*DATA[:2], DATA[2].astype(np.float32)), np.arange(1, 901) / 100
    settings = {"omega": 0.7, "k": 2, "max_iter": 3, "intercepts": True}
    opened = fastemf.store.open(build(tmp_path, data, weights=weights))
    fit = quietly(opened, client=client, n_jobs=1, **settings)
    assert fit.X.dtype == np.float32
    assert_equal_fits(fit, quietly(data, weights=weights, **settings))


def test_a_start_and_a_callback(client, path):
    settings = {"omega": 0.3, "k": 2}
    settings["init"] = in_memory(max_iter=2, **settings)
    seen = []

    def stop(record):
        seen.append(record)
        return record.sweep == 2

    fit = quietly(path, client=client, callback=stop, **settings)
    assert seen == list(fit.history)
    assert len(seen) == 2
    assert_equal_fits(fit, in_memory(callback=stop, **settings))


def test_a_checkpoint_resumes_on_any_source(client, path, tmp_path):
    settings = {"omega": 0.2, "k": 2, "tol": 0, "max_iter": 6, "intercepts": True}
    kept = {"checkpoint": fastemf.Checkpoint(tmp_path / "state.npz", every=1, resume=True)}
    quietly(path, client=client, **kept, **(settings | {"max_iter": 2}))
    quietly(path, **kept, **(settings | {"max_iter": 4}))
    resumed = quietly(path, client=client, **kept, **settings)
    assert_equal_fits(resumed, in_memory(**settings))
    (tmp_path / "other").mkdir()
    other = build(tmp_path / "other", (*DATA[:2], DATA[2][::-1]), shape=SHAPE)
    with pytest.raises(fastemf.CheckpointError, match="of other data"):
        quietly(other, client=client, **kept, **settings)


def test_levels_and_validation(client, path):
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        settings = {"omegas": (0.2, 0.8), "k": 2, "max_iter": 3, "reg": "noise"}
        levels = fastemf.complete_levels(path, client=client, **settings)
        reference = fastemf.complete_levels(DATA, shape=SHAPE, **settings)
    for fit, other in zip(levels.fits, reference.fits, strict=True):
        assert_equal_fits(fit, other)
    held = (DATA[0][:50], DATA[1][:50], DATA[2][:50] + 1)
    settings = {"omega": 0.5, "k": 2, "max_iter": 5, "validation": held}
    assert_equal_fits(quietly(path, client=client, **settings), in_memory(**settings))
    with pytest.raises(TypeError, match=r"validation must be entries .* got the proportion 0\.2"):
        fastemf.complete(path, 0.5, 2, client=client, validation=0.2)


def test_fewer_rows_than_blocks(client, tmp_path):
    R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0]])
    data = (*np.nonzero(~np.isnan(R)), R[~np.isnan(R)])
    fit = quietly(build(tmp_path, data), 0.5, 1, max_iter=2, client=client)
    assert_equal_fits(fit, quietly(R, 0.5, 1, max_iter=2))


NAMES = {"rows": "user", "cols": "item", "values": "seconds"}


def write_parts(folder, entries, cuts, **others):
    """Parquet files with the entries between the cuts."""
    columns = dict(zip(NAMES.values(), entries, strict=True)) | others
    paths = []
    for first, last in pairwise(cuts):
        paths.append(folder / f"{len(paths)}.parquet")
        part = {name: array[first:last] for name, array in columns.items()}
        parquet.write_table(pa.table(part), paths[-1])
    return paths


def test_files_equal_memory(client, tmp_path):
    weights = np.arange(1, 901) / 100
    settings = {"omega": 0.2, "k": 3, "max_iter": 2, "intercepts": True, "shape": SHAPE}
    # Two of the parts are empty; the columns are positions.
    paths = write_parts(tmp_path, DATA, [0, 0, 1, 450, 450, 900], times=weights)
    named = NAMES | {"weights": "times", "client": client, "store_path": tmp_path / "store"}
    fit = quietly(paths, **named, **settings)
    assert_equal_fits(fit, quietly(DATA, weights=weights, **settings))
    assert fit.row_labels is None
    assert fastemf.store.open(tmp_path / "store").size == 900


def test_tables_and_triplets_are_built_into_a_store(client, tmp_path):
    table = pa.table(dict(zip(NAMES.values(), (DATA[0] * 10, *DATA[1:]), strict=True)))
    settings = {"omega": 0.2, "k": 3, "max_iter": 2}
    for number, (R, names) in enumerate(((table, NAMES), (DATA, {"shape": SHAPE}))):
        path = tmp_path / f"{number}"
        fit = quietly(R, client=client, store_path=path, **names, **settings)
        expected = quietly(R, **names, **settings)
        assert_equal_fits(fit, expected)
        assert fit.row_labels == expected.row_labels
        assert_equal_fits(quietly(path, client=client, **settings), expected)
    with pytest.raises(FileExistsError, match="exists: delete it, or choose another path"):
        quietly(DATA, client=client, store_path=path, shape=SHAPE, **settings)


def test_labels_of_parts(client, tmp_path):
    rows, cols, values = DATA
    labelled = np.char.add("u", rows.astype(str)), cols[::-1] - 20, values
    table = pa.table(dict(zip(NAMES.values(), labelled, strict=True)))
    reference = quietly(table, 0.2, 2, max_iter=2, **NAMES)
    paths = write_parts(tmp_path, labelled, [0, 300, 300, 900])
    # Labels of CSV files are integers if those of all parts are.
    for number, part in enumerate([(300, 900), (0, 300)]):
        columns = (column[slice(*part)].tolist() for column in labelled)
        lines = [f"{u},{i},{s!r}" for u, i, s in zip(*columns, strict=True)]
        (tmp_path / f"{number}.csv").write_text("\n".join([",".join(NAMES.values()), *lines]))
    csv = [tmp_path / "1.csv", tmp_path / "0.csv"]
    stored = build(tmp_path, paths, **NAMES)
    first, second = ({**NAMES, "store_path": tmp_path / name} for name in ("first", "second"))
    for source, names in ((paths, first), (stored, {}), (csv, second)):
        fit = quietly(source, 0.2, 2, max_iter=2, client=client, **names)
        assert_equal_fits(fit, reference)
        assert (fit.row_labels, fit.col_labels) == (reference.row_labels, reference.col_labels)


def test_a_dask_frame_equals_memory(client, tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    rows, cols, values = (*DATA[:2], DATA[2].astype(np.float32))
    table = pd.DataFrame({"other": "text", "item": cols, "user": rows, "seconds": values})
    frame = dd.from_pandas(table, npartitions=5)
    settings = {"omega": 0.8, "k": 2, "max_iter": 2, "shape": SHAPE}
    named = NAMES | {"client": client, "store_path": tmp_path / "store"}
    fit = quietly(frame[frame["user"] != 7], **named, **settings)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    kept = rows != 7
    assert_equal_fits(fit, quietly((rows[kept], cols[kept], values[kept]), **settings))
    assert 7 in fit.unseen_rows


# --- lost workers ---------------------------------------------------------------------------


class Killer:
    """A callback that kills worker `when[sweep]` after that sweep, or during the next."""

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

    def finish(self):
        assert len(self.threads) == len(self.when)
        for thread in self.threads:
            thread.join()


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
def test_killed_workers_do_not_change_the_result(what, when, tmp_path):
    data = triplets(3000, 1000, 100_000)
    settings = {"omega": 0.1, "k": 8, "max_iter": max(when) + 2, "tol": 0, "intercepts": True}
    reference = quietly(data, **settings)
    with local_cluster() as workers, distributed.Client(workers) as client:
        killer = Killer(workers, client, when)
        if what == "store":
            R, names = build(tmp_path, data), {}
        else:
            R = write_parts(tmp_path, data, [0, 20_000, 70_000, 100_000])
            names = {**NAMES, "shape": reference.shape, "store_path": tmp_path / "store"}
        fit = quietly(R, client=client, callback=killer, **names, **settings)
        killer.finish()
    assert_equal_fits(fit, reference)


@pytest.mark.compiled
def test_lost_blocks_are_read_from_the_opened_state(tmp_path):
    # Meanwhile observations are appended twice.
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
        killer.finish()
    assert_equal_fits(fit, reference)
    assert (path / "data-1" / "rows.values.npy").exists()
    del fit
    assert fastemf.store.append(path, DATA).size == 200_900
    assert [found.name for found in path.glob("data-*")] == ["data-4"]


def test_lost_data_are_sent_again(client, path, monkeypatch):
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
    settings = {"omega": 0.2, "k": 2, "max_iter": 2}
    assert_equal_fits(quietly(path, client=client, **settings), in_memory(**settings))
    # Directly until that failed twice, then through the scheduler.
    assert direct[:4] == [True] * 4
    assert not any(direct[4:])
    assert len(direct) > 5


def test_observations_that_are_cancelled(client, path):
    def cancel(record):
        client.cancel([distributed.Future(key, client) for key in list(client.futures)])

    with pytest.raises(WorkersLostError, match="were cancelled, perhaps by a restart"):
        quietly(path, 0.2, 2, client=client, callback=cancel)


def test_all_workers_lost(path, monkeypatch):
    monkeypatch.setattr(clusters, "PATIENCE", 0.5)
    monkeypatch.setattr(clusters, "POLL", 0.2)
    one = {"n_workers": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**one) as workers, distributed.Client(workers) as client:
        with pytest.raises(WorkersLostError, match="all workers were lost"):
            quietly(path, 0.2, 2, client=client, callback=lambda _: workers.scale(0))
        with pytest.raises(ValueError, match=r"client must have workers, got none"):
            quietly(path, 0.2, 2, client=client)


# --- bad input ------------------------------------------------------------------------------


def test_wrong_arguments(client, path, tmp_path, monkeypatch):
    dd = pytest.importorskip("dask.dataframe")
    parts = write_parts(tmp_path, DATA, [0, 900])
    closed = distributed.Client(client.scheduler.address)
    closed.close()
    frame = dd.read_parquet([str(part) for part in parts])
    empty = write_parts(tmp_path, DATA, [0, 0, 0])
    built = NAMES | {"store_path": tmp_path / "built"}
    refusals = [
        (path, {"client": "tcp://127.0.0.1:8786"}, "client must be a distributed.Client or None"),
        (path, {"client": closed}, "client must be connected.*closed"),
        (tmp_path / "nothing", {"omega": 2}, "omega must lie strictly between 0 and 1"),
        (path, {"k": 1000}, "k must be at most"),
        (path, {"shape": (9, 9)}, "shape must not be given with a store"),
        (path, {"n_jobs": 0}, "n_jobs must not be 0"),
        (path, {"store_path": tmp_path / "built"}, "store_path must not be given with a store"),
        (sp.csr_matrix(np.eye(3)), {}, r"R must be a store.*store_path=.*got csr_matrix"),
        (parts, NAMES, r"R must be a store.*store_path= must name a folder.*got list"),
        (frame, NAMES, r"R must be a store.*store_path= must name a folder.*got DataFrame"),
        (pa.table({"user": [1]}), built | {"cols": None}, "cols= and values= must name columns"),
        (frame, built | {"rows": "users"}, "the Dask DataFrame has no column 'users'"),
        (empty, built, "at least one observation, got none"),
    ]
    for R, options, match in refusals:
        with pytest.raises((TypeError, ValueError), match=match):
            quietly(R, **({"omega": 0.5, "k": 1, "client": client} | options))
        assert not (tmp_path / "built").exists()
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"fastemf\[dask\]"):
        fastemf.complete(path, 0.5, 1, client=client)


def test_a_folder_that_workers_cannot_read(client, path, tmp_path):
    store = fastemf.store.open(path)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"every worker can read.*no such folder \(worker tcp"):
        fastemf.complete(store, 0.5, 1, client=client)
    build(tmp_path, triplets(seed=1))
    with pytest.raises(ValueError, match="another store on a worker"):
        fastemf.complete(store, 0.5, 1, client=client)


def test_errors_of_a_callback_and_of_a_damaged_store(client, path):
    def stop(record):
        raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        quietly(path, 0.5, 2, client=client, callback=stop)
    indices = path / "data-1" / "cols.indices.npy"
    content = bytearray(indices.read_bytes())
    content[-4:] = b"\xff\xff\xff\x7f"
    indices.write_bytes(content)
    with pytest.raises(fastemf.store.StoreError, match=r"cols.indices.npy is damaged"):
        quietly(path, 0.5, 2, client=client)


ODD = {
    "no column 'seconds'": {"seconds": None},
    "must have one type": {"seconds": np.float32},
    "'user' must have one type in all files": {"user": str},
    r"must be finite.*inf at .*odd.parquet": {"seconds": lambda s: s * np.inf},
    "must not be negative": {"item": lambda i: -1 - i},
    "must be below 40": {"item": lambda i: i + 1000},
    "weights must be finite and positive": {"times": lambda w: -w},
}


@pytest.mark.parametrize("message", ODD)
def test_a_part_that_cannot_be_fitted(message, client, tmp_path):
    times = np.ones(900)
    paths = write_parts(tmp_path, DATA, [0, 450, 900], times=times)
    columns = dict(zip(NAMES.values(), DATA, strict=True)) | {"times": times}
    for name, change in ODD[message].items():
        column = columns.pop(name)
        if change is not None:
            columns[name] = column.astype(change) if isinstance(change, type) else change(column)
    parquet.write_table(pa.table(columns), tmp_path / "odd.parquet")
    paths.insert(0, tmp_path / "odd.parquet")
    with pytest.raises((ValueError, TypeError, IndexError), match=message):
        quietly(
            paths,
            0.5,
            1,
            client=client,
            shape=SHAPE,
            weights="times",
            store_path=tmp_path / "store",
            **NAMES,
        )
    assert not (tmp_path / "store").exists()


def test_labels_of_two_kinds(client, tmp_path):
    rows, cols, values = DATA
    for name, users in (("a", rows), ("b", rows.astype(str))):
        (tmp_path / name).mkdir()
        write_parts(tmp_path / name, (users, cols, values), [0, 900])
    paths = [tmp_path / "a" / "0.parquet", tmp_path / "b" / "0.parquet"]
    with pytest.raises((TypeError, ValueError), match="column 'user' must have one type"):
        quietly(paths, 0.5, 1, client=client, store_path=tmp_path / "store", **NAMES)

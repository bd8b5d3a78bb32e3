"""Loaders of published data, errors that name the place in a file, and splits."""

import re
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import sparse_array

from fastemf.datasets import load_netlatency, load_wsdream, make_latencies, split

unpublished = pytest.mark.filterwarnings("ignore:.*published")

RT = "0.5\t-1\t2\n0\t19.99\t-1\n"


@pytest.fixture
def rt_file(tmp_path):
    path = tmp_path / "rtMatrix.txt"
    path.write_text(RT)
    return path


# --- WS-DREAM -------------------------------------------------------------------------------


@unpublished
def test_text_matrix_keeps_zeros_and_large_values(rt_file):
    data = load_wsdream(rt_file)
    assert data.R.shape == (2, 3)
    assert list(zip(data.R.row, data.R.col, data.R.data, strict=True)) == [
        (0, 0, 0.5), (0, 2, 2.0), (1, 0, 0.0), (1, 1, 19.99),
    ]  # fmt: skip
    assert data.failed.tolist() == [[0, 1], [1, 2]]
    assert (data.unit, data.source) == ("s", None)


@unpublished
@pytest.mark.parametrize(("failures", "value"), [("cap", 20.0), (7, 7.0)])
def test_failures_as_values(rt_file, failures, value):
    data = load_wsdream(rt_file, failures=failures)
    assert data.R.nnz == 6
    assert data.R.toarray()[0, 1] == data.R.toarray()[1, 2] == value


@unpublished
def test_directories_and_archives(tmp_path, rt_file):
    (tmp_path / "tpMatrix.txt").write_text("1\t2\n")
    archive = tmp_path / "dataset1.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("dataset1/readme.txt", "not a matrix")
        file.writestr("dataset1/rtMatrix.txt", RT)
    for path in (tmp_path, archive):
        assert load_wsdream(path).R.data.tolist() == [0.5, 2.0, 0.0, 19.99]
    throughput = load_wsdream(tmp_path, kind="tp")
    assert (throughput.R.data.tolist(), throughput.unit) == ([1.0, 2.0], "kbit/s")


def fragments(path, **changes):
    arrays = {
        "row": np.array([0, 1], np.int16), "col": np.array([2, 0], np.int16),
        "val": np.array([0.25, 3.0], np.float32), "src": np.array([1, 8], np.uint8),
        "inv_row": np.array([1], np.int16), "inv_col": np.array([1], np.int16),
        "shape": np.array([2, 3], np.int32),
    }  # fmt: skip
    arrays.update(changes)
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


@unpublished
def test_fragments(tmp_path):
    data = load_wsdream(fragments(tmp_path / "some.npz"), failures="cap")
    assert data.R.toarray().tolist() == [[0, 0, 0.25], [3.0, 20.0, 0]]
    assert data.source.tolist() == [1, 8, 0]
    assert data.failed.tolist() == [[1, 1]]
    bare = load_wsdream(fragments(tmp_path / "bare.npz", src=None, inv_row=None, inv_col=None))
    assert bare.source is None
    assert bare.failed.shape == (0, 2)


def test_an_unpublished_shape_gives_a_warning(rt_file):
    message = "rtMatrix.txt: expected the published shape, .* got 2 x 3"
    with pytest.warns(UserWarning, match=message):
        load_wsdream(rt_file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\t2\n3\tx\n", "line 2, column 2: expected a number, got 'x'"),
        ("1\t2\n3\n", "line 2: expected 2 columns as in line 1, got 1"),
        ("1\tnan\n", "line 1, column 2: expected a finite number, got 'nan'"),
        ("1\t2\n-3\t1\n", "line 2, column 1: expected a value >= 0, or -1 for a failed call"),
        ("", "line 1: expected a row of numbers, got an empty file"),
    ],
)
def test_malformed_text(tmp_path, text, message):
    path = tmp_path / "rtMatrix.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"rtMatrix.txt: {message}"):
        load_wsdream(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"val": None}, "expected the arrays row, col, val, shape, got row, col"),
        ({"val": np.ones(3)}, "expected row, col and val of one length"),
        ({"shape": np.array([2])}, "a shape of two numbers"),
        ({"src": np.ones(5)}, "expected src of the length of val"),
        ({"row": np.array([0, 2])}, "expected row from 0 to 1, got 0 to 2"),
        ({"col": np.array([-1, 2])}, "expected col from 0 to 2, got -1 to 2"),
        ({"val": np.array([1.0, np.nan])}, r"val\[1\]: expected a finite value >= 0, got nan"),
    ],
)
def test_malformed_fragments(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        load_wsdream(fragments(tmp_path / "some.npz", **changes))


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("nowhere", {}, FileNotFoundError, "nowhere: no such file or directory; expected rtMat"),
        ("", {"kind": "tp"}, FileNotFoundError, r"contains no tpMatrix.txt or wsdream1_tp\*.npz"),
        ("bad.npz", {}, ValueError, r"bad.npz: expected an .npz file of arrays"),
        ("", {"kind": "xx"}, ValueError, "kind must be one of 'rt', 'tp', got 'xx'"),
        ("", {"failures": "keep"}, ValueError, "failures must be one of 'drop', 'cap', got 'keep'"),
        ("", {"kind": "tp", "failures": "cap"}, ValueError, 'failures="cap" requires kind="rt"'),
    ],
)
def test_missing_files_and_bad_options(tmp_path, name, options, error, message):
    (tmp_path / "bad.npz").write_bytes(b"not an archive")
    with pytest.raises(error, match=message):
        load_wsdream(tmp_path / name, **options)


def test_real_fragments(data_folder):
    data = load_wsdream(data_folder)
    assert data.R.shape == (339, 5825)
    uniform = data.R.data[(data.source & 1) > 0]
    assert uniform.size == 98_699
    assert uniform.mean() == pytest.approx(0.9095, abs=5e-5)
    assert np.median(uniform) == pytest.approx(0.320, abs=5e-4)


# --- NetLatency -----------------------------------------------------------------------------


@unpublished
def test_the_diagonal_is_left_out(tmp_path):
    path = tmp_path / "times"
    path.write_text("0 5 7\n5 0 0\n 7  0 0\n")
    data = load_netlatency(path)
    assert list(zip(data.R.row, data.R.col, data.R.data, strict=True)) == [
        (0, 1, 5.0), (0, 2, 7.0), (1, 0, 5.0), (2, 0, 7.0),
    ]  # fmt: skip
    assert data.failed.tolist() == [[1, 2], [2, 1]]
    assert data.unit == "ms"


@unpublished
def test_snapshots_are_in_numeric_order(tmp_path):
    folder = tmp_path / "PlanetLab"
    folder.mkdir()
    for number in (10, 2, 1):
        (folder / f"PlanetLabData_{number}").write_text(f"0 {number}\n{number} 0\n")
    first = [load_netlatency(tmp_path, snapshot).R.data[0] for snapshot in range(3)]
    assert first == [1, 2, 10]
    with pytest.raises(ValueError, match=r"snapshot must be below 3, the number in .*, got 3"):
        load_netlatency(tmp_path, 3)


@unpublished
def test_latency_stack(tmp_path):
    path = tmp_path / "netlatency_x.npz"
    stack = np.array([[[0, 1.0], [1, 0]], [[0, 2.0], [2, 0]]])
    np.savez(path, rtt_ms=stack)
    assert load_netlatency(tmp_path, 1).R.data.tolist() == [2.0, 2.0]
    np.savez(path, rtt_ms=stack[0])
    assert load_netlatency(path).R.data.tolist() == [1.0, 1.0]
    np.savez(path, rtt_ms=stack[0, 0])
    with pytest.raises(ValueError, match=r"expected rtt_ms of shape \(snapshots, nodes, nodes\)"):
        load_netlatency(path)


def test_malformed_latency(tmp_path):
    path = tmp_path / "times"
    path.write_text("0 1 2\n1 0 2\n")
    with pytest.raises(ValueError, match="times: expected a square matrix, got 2 x 3"):
        load_netlatency(path)
    path.write_text("0 1\n-4 0\n")
    warns = pytest.warns(UserWarning, match="expected a published shape, .*, got 2 x 2")
    message = "line 2, column 1: expected a time >= 0, got -4"
    with warns, pytest.raises(ValueError, match=message):
        load_netlatency(path)


def test_real_latencies(data_folder):
    data = load_netlatency(data_folder)
    assert data.R.nnz == 490 * 489
    assert (data.R.row != data.R.col).all()
    assert (abs(data.R - data.R.T)).max() == 0


# --- split ----------------------------------------------------------------------------------


def cells(R):
    return set(zip(R.row.tolist(), R.col.tolist(), strict=True))


@given(st.integers(0, 2**32), st.sampled_from(["cell", "row", "pair"]), st.floats(0.1, 0.7))
def test_a_split_is_a_partition(seed, by, share):
    rng = np.random.default_rng(seed)
    R = sparse_array((9, 9), 0.5, "coo", rng)
    train, test = split(R, share, by=by, random_state=seed)
    assert cells(train) | cells(test) == cells(R)
    assert not cells(train) & cells(test)
    np.testing.assert_array_equal(train.toarray() + test.toarray(), R.toarray())
    if by == "pair":
        assert not {(j, i) for i, j in cells(train)} & cells(test)
    if by == "row":
        counts = np.bincount(R.row, minlength=9)
        expected = [max(1, round(share * count)) if count else 0 for count in counts]
        assert np.bincount(train.row, minlength=9).tolist() == expected


def test_numbers_of_cells():
    full = np.arange(1.0, 37.0).reshape(6, 6)
    assert split(full, 10, random_state=0).train.nnz == 10
    assert split(full, 0.25, random_state=0).train.nnz == 9
    rows = split(full, 2, by="row", random_state=0).train
    assert np.bincount(rows.row).tolist() == [2] * 6
    pairs = split(full - np.diag(np.full(6, np.nan)), 5, by="pair", random_state=0).train
    assert pairs.nnz == 10


def test_same_seed_same_split_and_the_input_is_left_alone():
    R = sparse_array((20, 15), 0.3, "csr", np.random.default_rng(0))
    before = R.copy()
    one, two, other = (split(R, 0.5, random_state=seed).train for seed in (3, 3, 4))
    assert cells(one) == cells(two) != cells(other)
    assert abs(R - before).nnz == 0


def test_repeated_observations_stay_together():
    rows, cols = np.repeat([0, 1, 2, 3], 3), np.zeros(12, int)
    train, test = split((rows, cols, np.arange(12.0)), 0.5, random_state=0)
    assert train.nnz == test.nnz == 6
    assert not set(train.row) & set(test.row)


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        (0.0, {}, r"train must be a proportion in \(0, 1\) or a number of cells, got 0.0"),
        (0, {}, "train must be at least 1, got 0"),
        (12, {}, "train must be below the 12 cells observed, got 12"),
        (4, {"by": "row"}, "train must leave some test cells, got 4 of 12 cells"),
        (0.5, {"by": "pair"}, 'by="pair" needs a square matrix, got 3 x 4'),
        (0.5, {"by": "day"}, "by must be one of 'cell', 'row', 'pair', got 'day'"),
    ],
)
def test_impossible_splits(train, options, message):
    with pytest.raises(ValueError, match=message):
        split(np.ones((3, 4)), train, **options)


def test_latencies_are_a_skewed_log_with_repeats():
    log = make_latencies(40, 12, 3000, random_state=3)
    assert log.client.shape == log.service.shape == log.ms.shape == (3000,)
    assert np.unique(log.client).size == 40
    assert np.unique(log.service).size == 12
    assert len(set(zip(log.client.tolist(), log.service.tolist(), strict=True))) < 480
    assert log.ms.min() >= 0
    assert log.ms.mean() > 1.2 * np.median(log.ms)
    again = make_latencies(40, 12, 3000, random_state=3)
    assert all(np.array_equal(a, b) for a, b in zip(log, again, strict=True))


def test_every_client_and_service_calls_whatever_the_seed():
    """The commands of the README name some of them."""
    for seed in range(100):
        log = make_latencies(random_state=seed)
        assert np.unique(log.client).size == 200
        assert np.unique(log.service).size == 60
        assert "eu-7" in log.client
        assert "images-6" in log.service
    few = make_latencies(50, 40, 45, random_state=0)  # too few for all clients: as many as possible
    assert np.unique(few.client).size == 45
    assert np.unique(few.service).size == 40


@pytest.mark.parametrize("name", ["clients", "services", "calls"])
def test_bad_arguments_of_make_latencies(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        make_latencies(**{name: 0})


def test_damaged_archives(tmp_path):
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rtMatrix.txt", "1 2\n3 4\n" * 100)
    good = path.read_bytes()
    for change in (good.index(b"rtMatrix.txt") + 14, good.index(b"PK\x01\x02")):
        damaged = bytearray(good)
        damaged[change] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises((ValueError, FileNotFoundError), match=re.escape(str(path))):
            load_wsdream(path)

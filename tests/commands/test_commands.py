"""The commands: what a shell's user gives them, gets from them, and is told when it is wrong."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse as sp
from pyarrow import parquet
from strategies import sparse_array

import fastemf
from fastemf.cli import main
from fastemf.commands.info import render
from fastemf.inputs import table_files
from fastemf.support import whole_file

pytestmark = pytest.mark.filterwarnings("default")

NAMES = {"rows": "client", "cols": "service", "values": "ms"}
ALL_NAMED = ["--rows", "client", "--cols", "service", "--values", "ms"]
RANK = ["rank", "--order", "smallest"]
SMALL = ["-k", "2", "--max-iter", "6"]
FITTED = {"k": 2, "max_iter": 6, "intercepts": True}


def log_columns(seed=0):
    """Every client and service, then lines at random; values with a long right tail."""
    rng = np.random.default_rng(seed)
    i = np.concatenate([np.arange(30), rng.integers(30, size=120)])
    j = np.concatenate([np.arange(30) % 8, rng.integers(8, size=120)])
    ms = rng.gamma(2, 20, 30)[i] + rng.gamma(2, 20, 8)[j] * rng.lognormal(0, 1, 150)
    clients = np.array([f"eu-{n}" for n in range(30)])[i]
    services = np.array([f"srv{n}" for n in range(8)])[j]
    return {"client": clients, "service": services, "ms": ms}


LOG = log_columns()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Commands run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def log():
    table_files.write_table("log.csv", LOG)
    return "log.csv"


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder with models of the log, of one level and of two, by the commands."""
    folder = tmp_path_factory.mktemp("made")
    log, model, levels = (str(folder / name) for name in ("log.csv", "model.npz", "levels.npz"))
    table_files.write_table(log, LOG)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main(["fit", log, *SMALL, "-o", model]) == 0
        assert main(["levels", log, *SMALL, "--omegas", "0.1", "0.9", "-o", levels]) == 0
    return folder


@pytest.fixture
def model(log, made):
    return shutil.copy(made / "model.npz", "model.npz")


@pytest.fixture
def levels_model(log, made):
    return shutil.copy(made / "levels.npz", "levels.npz")


@pytest.fixture
def quiet(capsys):
    """Run a command that must succeed; returns what it printed."""

    def run(*argv):
        capsys.readouterr()
        assert main(list(map(str, argv))) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys):
    """Run a command that must fail as bad input does; returns its message."""

    def run(*argv):
        capsys.readouterr()
        before = {path: path.stat().st_mtime_ns for path in Path().iterdir()}
        assert main(list(map(str, argv))) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("fastemf: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        assert before == {path: path.stat().st_mtime_ns for path in Path().iterdir()}
        return err.removeprefix("fastemf: ").rstrip("\n")

    return run


def by_api(R="log.csv", omega=0.5, **options):
    names = {} if str(R).endswith((".mtx", ".npz")) else NAMES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fastemf.complete(R, omega, **names, **FITTED | options)


def parsed(text):
    """Columns of CSV text by name, all as strings."""
    header, *lines = csv.reader(io.StringIO(text))
    return {name: [line[at] for line in lines] for at, name in enumerate(header)}


def same_fit(path, fit):
    found = fastemf.load(path)
    for name in ("X", "Y", "row_intercepts", "col_intercepts"):
        np.testing.assert_array_equal(getattr(found, name), getattr(fit, name))
    assert (found.omega, found.mu, found.reg) == (fit.omega, fit.mu, fit.reg)
    assert found.row_labels == fit.row_labels
    assert found.col_labels == fit.col_labels


def in_a_process(*argv, code="", **options):
    """The command in a process of its own; Python's `code` goes first."""
    text = f"import sys\n{code}\nfrom fastemf.cli import main\nsys.exit(main())"
    return [sys.executable, "-c", text, *map(str, argv)], {
        "env": os.environ | {"PYTHONPATH": str(Path(fastemf.__file__).parent.parent)},
        "stderr": subprocess.PIPE, "text": True, **options,
    }  # fmt: skip


def finished(*argv, **options):
    command, options = in_a_process(*argv, **options)
    return subprocess.run(command, check=False, **options)


# --- fit -----------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", [".csv", ".tsv", ".parquet"])
def test_a_fit_of_a_table_is_that_of_python(extension, quiet):
    table_files.write_table(f"log{extension}", LOG)
    out = quiet("fit", f"log{extension}", *SMALL, "--omega", "0.9", "-o", "model.npz")
    same_fit("model.npz", by_api(f"log{extension}", 0.9))
    assert "30 rows × 8 columns, rank 2, float64" in out
    assert "client: eu-0, eu-1, eu-2, …" in out
    assert "omega = 0.9: values above the fit weigh 0.9, below 0.1" in out


@pytest.mark.parametrize("extension", [".mtx", ".npz"])
def test_a_fit_of_a_matrix_is_that_of_python(extension, quiet):
    R = sparse_array((30, 8), 0.6, "csr", np.random.default_rng(0))
    path = f"R{extension}"
    if extension == ".npz":
        sp.save_npz(path, R)
    else:
        scipy.io.mmwrite(path, R)
    assert "by position, from 0" in quiet("fit", path, *SMALL, "-o", "model.npz")
    same_fit("model.npz", by_api(path))
    chosen = ["--ks", "1", "--regs", "auto", "--folds", "2", "--max-iter", "2"]
    assert quiet("select", path, *chosen).endswith("chosen\n")
    fit = fastemf.load("model.npz")
    Path("pairs.csv").write_text("a,b\n3,1\n29,7\n")
    found = parsed(quiet("predict", "model.npz", "pairs.csv"))
    assert list(map(float, found["prediction"])) == fit.predict([3, 29], [1, 7]).tolist()
    ranked = parsed(quiet(*RANK, "model.npz", "3", "-n", "2", "--seen", path))
    expected = fit.rank([3], 2, order="smallest", seen=path)
    assert list(map(int, ranked["col"])) == expected.cols[0].tolist()
    assert ranked["row"] == ["3", "3"]


def test_columns_are_found_by_name_in_any_order(quiet):
    shuffled = {"note": ["x"] * 150, "ms": LOG["ms"], "service": LOG["service"]}
    table_files.write_table("shuffled.csv", shuffled | {"client": LOG["client"]})
    table_files.write_table("log.csv", LOG)
    quiet("fit", "shuffled.csv", *ALL_NAMED, *SMALL, "-o", "model.npz")
    same_fit("model.npz", by_api())


def test_standard_input_is_a_table(log, quiet, monkeypatch):
    def standard_input(path):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(path).read_bytes())))

    standard_input(log)
    quiet("fit", "-", *SMALL, "-o", "model.npz")
    same_fit("model.npz", by_api())
    standard_input(log)
    assert quiet("predict", "model.npz", "-") == quiet("predict", "model.npz", log)
    standard_input(log)
    seen = quiet(*RANK, "model.npz", "eu-3", "--seen", "-")
    assert seen == quiet(*RANK, "model.npz", "eu-3", "--seen", log)
    assert seen != quiet(*RANK, "model.npz", "eu-3")


def test_intercepts_are_on_unless_told(log, quiet):
    with_them = json.loads(quiet("fit", log, *SMALL, "--json", "-o", "with.npz"))
    out = quiet("fit", log, *SMALL, "--no-intercepts", "-o", "without.npz")
    assert with_them["intercepts"] is True
    assert fastemf.load("with.npz").row_intercepts is not None
    assert re.search(r"predicts +X Yᵀ,", out)
    same_fit("without.npz", by_api(intercepts=False))


def test_options_reach_the_fit(log, quiet):
    quiet("fit", log, *SMALL, "--reg", "0.5", "--tol", "0.5", "--seed", "3", "--jobs", "1",
          "-o", "model.npz")  # fmt: skip
    same_fit("model.npz", by_api(reg=0.5, tol=0.5, random_state=3))


def test_rank_0_is_intercepts_alone(log, quiet):
    quiet("fit", log, "-k", "0", "--max-iter", "6", "-o", "model.npz")
    same_fit("model.npz", by_api(k=0))
    quiet("levels", log, "-k", "0", "-o", "levels.npz")
    assert {fit.k for fit in fastemf.load("levels.npz").fits} == {0}
    assert "rank" in quiet("info", "model.npz")
    assert quiet("select", log, "--ks", "0", "1", "--folds", "2")


def test_validation_stops_a_fit(log, quiet):
    quiet("fit", log, "-k", "2", "--validation", "0.3", "-o", "model.npz")
    same_fit("model.npz", by_api(validation=0.3, max_iter=100))
    assert not np.isnan(fastemf.load("model.npz").history[-1].validation_loss)
    quiet("levels", log, "-k", "2", "--validation", "0.3", "-o", "levels.npz")
    for fit in fastemf.load("levels.npz").fits:
        assert not np.isnan(fit.history[-1].validation_loss)


def test_weights_are_a_column(quiet):
    weighted = LOG | {"calls": np.arange(1, 151)}
    table_files.write_table("log.csv", weighted)
    quiet("fit", "log.csv", *ALL_NAMED, "--weights", "calls", *SMALL, "-o", "model.npz")
    same_fit("model.npz", by_api(weights="calls"))
    # The three columns beside the weights need no names.
    quiet("fit", "log.csv", "--weights", "calls", *SMALL, "-o", "same.npz")
    same_fit("same.npz", fastemf.load("model.npz"))


def test_coverage_in_place_of_a_level(quiet):
    i, j = (index.ravel() for index in np.indices((30, 8)))
    ms = np.random.default_rng(0).lognormal(3, 1, 240)
    log = "full.csv"
    table_files.write_table(log, {"client": i, "service": j, "ms": ms})
    facts = json.loads(quiet("fit", log, *SMALL, "--coverage", "0.5", "--json", "-o", "model.npz"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fastemf.level_for_coverage(log, 0.5, **NAMES, **FITTED)
    same_fit("model.npz", found.fit)
    assert facts["coverage"] == found.coverage
    assert facts["coverage_error"] == found.standard_error
    assert facts["shift"] == found.shift
    text = quiet("fit", log, *SMALL, "--coverage", "0.5", "--force", "-o", "model.npz")
    assert f"{found.coverage:.3f} ± {found.standard_error:.3f} of held-out values below" in text
    assert "added to mu" not in text
    assert text.splitlines()[-1] == quiet("info", "model.npz").splitlines()[-1]
    assert "with 7 added to mu" in render(facts | {"shift": 7.0})


# --- predict -------------------------------------------------------------------------------


def test_predictions_are_those_of_python_to_the_bit(model, quiet):
    fit = fastemf.load(model)
    expected = fit.predict(LOG["client"], LOG["service"])
    found = parsed(quiet("predict", model, "log.csv"))
    assert found["client"] == LOG["client"].tolist()
    assert found["service"] == LOG["service"].tolist()
    np.testing.assert_array_equal(np.array(found["prediction"], float), expected)
    assert quiet("predict", model, "log.csv", "-o", "-") == quiet("predict", model, "log.csv")
    for extension, delimiter in ((".csv", ","), (".tsv", "\t")):
        assert quiet("predict", model, "log.csv", "-o", f"out{extension}") == ""
        lines = list(
            csv.reader(Path(f"out{extension}").read_text().splitlines(), delimiter=delimiter)
        )
        assert [float(line[2]) for line in lines[1:]] == expected.tolist()
    lines = json.loads(quiet("predict", model, "log.csv", "--json"))
    assert [line["prediction"] for line in lines] == expected.tolist()
    assert lines[3] == {"client": "eu-3", "service": "srv3", "prediction": expected[3]}
    quiet("predict", model, "log.csv", "--json", "-o", "out.json")
    assert json.loads(Path("out.json").read_text()) == lines


def test_single_precision_stays_single(quiet):
    table = pa.table(LOG | {"ms": LOG["ms"].astype(np.float32)})
    parquet.write_table(table, "log.parquet")
    assert "float32" in quiet("fit", "log.parquet", *SMALL, "-o", "model.npz")
    quiet("predict", "model.npz", "log.parquet", "-o", "out.parquet")
    found = parquet.read_table("out.parquet").column("prediction").to_numpy()
    expected = fastemf.load("model.npz").predict(table)
    assert found.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    as_text = np.array(parsed(quiet("predict", "model.npz", "log.parquet"))["prediction"], "f4")
    np.testing.assert_array_equal(as_text, expected)


def test_several_levels_are_several_columns(levels_model, quiet):
    expected = fastemf.load(levels_model).predict(LOG["client"], LOG["service"])
    found = parsed(quiet("predict", levels_model, "log.csv"))
    assert list(found) == ["client", "service", "omega=0.1", "omega=0.9"]
    for at, name in enumerate(("omega=0.1", "omega=0.9")):
        np.testing.assert_array_equal(np.array(found[name], float), expected[:, at])


@pytest.mark.parametrize(
    ("told", "clip"),
    [
        (["60", "none"], (60, None)),
        (["none", "60"], (None, 60)),
        (["50", "60"], (50, 60)),
        (["0", "inf"], (0, None)),
    ],
)
def test_clip(told, clip, model, quiet):
    found = parsed(quiet("predict", model, "log.csv", "--clip", *told))["prediction"]
    expected = fastemf.load(model).predict(LOG["client"], LOG["service"], clip=clip)
    np.testing.assert_array_equal(np.array(found, float), expected)


def test_columns_of_pairs(model, quiet, refused):
    expected = quiet("predict", model, "log.csv").splitlines()[1:]
    renamed = {"who": LOG["client"], "what": LOG["service"]}
    table_files.write_table("two.csv", renamed)  # the only two there are
    table_files.write_table("three.csv", {"ms": LOG["ms"], **renamed})
    assert quiet("predict", model, "two.csv").splitlines()[1:] == expected
    found = quiet("predict", model, "three.csv", "--rows", "who", "--cols", "what")
    assert found.splitlines() == ['"who","what","prediction"', *expected]
    message = refused("predict", model, "three.csv")
    assert message == "three.csv: there is no column 'client'; there are ms, who, what"


def test_a_column_of_the_users_keeps_its_name(quiet):
    renamed = {"prediction": LOG["client"], "place": LOG["service"], "ms": LOG["ms"]}
    table_files.write_table("log.csv", renamed)
    quiet("fit", "log.csv", *SMALL, "-o", "model.npz")
    found = parsed(quiet("predict", "model.npz", "log.csv"))
    assert list(found) == ["prediction", "place", "prediction_"]
    assert found["prediction"] == LOG["client"].tolist()
    found = parsed(quiet(*RANK, "model.npz", "eu-1", "-n", "1"))
    assert list(found) == ["prediction", "place_", "place", "prediction_"]
    assert found["place_"] == ["1"]


def test_unknown_labels(model, quiet, refused):
    Path("pairs.csv").write_text("client,service\neu-1,srv1\nmars,srv1\neu-1,srv99\n")
    message = refused("predict", model, "pairs.csv")
    assert message == "unknown labels: 1 in rows ('mars') and 1 in cols ('srv99')"
    found = parsed(quiet("predict", model, "pairs.csv", "--unknown", "nan"))["prediction"]
    assert [text == "nan" for text in found] == [False, True, True]
    lines = json.loads(quiet("predict", model, "pairs.csv", "--unknown", "nan", "--json"))
    assert [line["prediction"] is None for line in lines] == [False, True, True]
    assert refused(*RANK, model, "mars") == "unknown labels: 1 in rows ('mars')"


@pytest.mark.parametrize("kind", ["model", "levels_model"])
def test_newcomers_are_predicted_and_ranked_as_by_python(kind, quiet, request):
    path = request.getfixturevalue(kind)
    Path("pairs.csv").write_text("client,service\neu-1,srv1\nmars,srv1\neu-1,srv99\nmars,srv99\n")
    rows, cols = ["eu-1", "mars", "eu-1", "mars"], ["srv1", "srv1", "srv99", "srv99"]
    found = fastemf.load(path)
    expected = found.predict(rows, cols, unknown="model").reshape(4, -1)
    columns = list(parsed(quiet("predict", path, "pairs.csv", "--unknown", "model")).values())[2:]
    assert [list(map(float, column)) for column in columns] == expected.T.tolist()
    assert np.isfinite(expected).all()
    level = {"level": 0.9} if kind == "levels_model" else {}
    told = ["--level", "0.9"] if level else []
    best = found.rank(["mars", "eu-1"], 3, order="largest", unknown="model", **level)
    told += ["-n", "3", "--order", "largest", "--unknown"]
    listed = parsed(quiet("rank", path, "mars", "eu-1", *told, "model"))
    assert listed["client"] == ["mars"] * 3 + ["eu-1"] * 3
    assert listed["service"] == best.cols.ravel().tolist()
    assert list(map(float, listed["prediction"])) == best.values.ravel().tolist()
    assert set(parsed(quiet("rank", path, "mars", "eu-1", *told, "nan"))["client"]) == {"eu-1"}


# --- labels --------------------------------------------------------------------------------


def fitted_with(clients, quiet, extension=".csv"):
    """A model of a log with other clients, of which there are three; returns it."""
    i = np.arange(24) % 3
    table = pa.table({"client": pa.array(clients).take(i), "service": np.arange(24) // 3,
                      "ms": np.random.default_rng(0).gamma(2, 20, 24)})  # fmt: skip
    table_files.write_table(
        f"log{extension}", dict(zip(table.column_names, table.columns, strict=True))
    )
    quiet("fit", f"log{extension}", "-k", "1", "-o", "model.npz", "--force")
    return fastemf.load("model.npz")


def asked(clients):
    Path("pairs.csv").write_text("client,service\n" + "".join(f"{c},5\n" for c in clients))
    return "pairs.csv"


def test_a_newcomer_among_integers_keeps_its_name(quiet):
    fit = fitted_with([7, -12, 30], quiet)
    found = parsed(quiet(*RANK, "model.npz", "8", "x", "7", "-n", "1", "--unknown", "model"))
    assert found["client"] == ["8", "x", "7"]
    best = fit.rank([8, 9, 7], 1, order="smallest", unknown="model")
    assert list(map(int, found["service"])) == best.cols[:, 0].tolist()
    assert list(map(float, found["prediction"])) == best.values[:, 0].tolist()


def test_integer_labels(quiet, refused):
    fit = fitted_with([7, -12, 30], quiet)
    assert fit.row_labels.kind == "int64"
    found = parsed(quiet("predict", "model.npz", asked(["-12", "30"])))
    assert found["client"] == ["-12", "30"]
    assert list(map(float, found["prediction"])) == fit.predict([-12, 30], 5).tolist()
    # One client that is no integer makes the column of the file strings.
    pairs = asked(["30", "x", "007", "99", str(2**70)])
    found = parsed(quiet("predict", "model.npz", pairs, "--unknown", "nan"))["prediction"]
    assert found == [repr(float(fit.predict(30, 5))), *["nan"] * 4]
    message = refused("predict", "model.npz", pairs)
    assert message == f"unknown labels: 4 in rows ('x', '007', '99', '{2**70}')"
    assert parsed(quiet(*RANK, "model.npz", "-12", "-n", "1"))["client"] == ["-12"]
    assert refused(*RANK, "model.npz", "007") == "unknown labels: 1 in row ('007')"


def test_unsigned_labels(quiet):
    large = 2**64 - 1
    fit = fitted_with(pa.array([1, large, 2], pa.uint64()), quiet, ".parquet")
    assert fit.row_labels.kind == "uint64"
    found = parsed(quiet("predict", "model.npz", asked([large, 1])))["prediction"]
    assert list(map(float, found)) == [float(fit.predict(c, 5)) for c in (large, 1)]
    assert parsed(quiet(*RANK, "model.npz", large, "-n", "1"))["client"] == [str(large)]


def test_strings_that_look_like_integers(quiet):
    fit = fitted_with(["007", "12", "x"], quiet)
    assert fit.row_labels.kind == "str"
    for clients in (["12", "12"], ["007", "12"]):
        found = parsed(quiet("predict", "model.npz", asked(clients)))
        assert found["client"] == clients
        assert list(map(float, found["prediction"])) == fit.predict(clients, 5).tolist()
    assert parsed(quiet(*RANK, "model.npz", "007", "12", "-n", "1"))["client"] == ["007", "12"]


DAYS = [datetime.date(2024, 1, day) for day in (1, 2, 3)]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("ns")])
def test_dates(kind, quiet, refused):
    fit = fitted_with(pa.array(DAYS).cast(kind), quiet, ".parquet")
    assert fit.row_labels.kind.startswith("datetime64")
    expected = fit.predict(np.array(DAYS[1:], "datetime64[D]"), 5).tolist()
    from_file = parsed(quiet("predict", "model.npz", "log.parquet"))
    assert float(from_file["prediction"][16]) == expected[0]  # the second day, service 5
    pairs = asked(DAYS[1:])
    assert list(map(float, parsed(quiet("predict", "model.npz", pairs))["prediction"])) == expected
    # What is written is read again.
    found = parsed(quiet("predict", "model.npz", asked(from_file["client"][1:3])))
    assert list(map(float, found["prediction"])) == expected
    ranked = json.loads(quiet(*RANK, "model.npz", "2024-01-02", "-n", "1", "--json"))
    assert ranked[0]["client"].startswith("2024-01-02")
    bad = asked(["2024-01-02", "today", "2024", "2024-01-02T10:00", "2024-13-01"])
    found = parsed(quiet("predict", "model.npz", bad, "--unknown", "nan"))["prediction"]
    assert found == [repr(expected[0]), *["nan"] * 4]
    assert "('today', '2024', '2024-01-02T10:00', '2024-13-01')" in refused(
        "predict", "model.npz", bad
    )
    assert "1 in rows ('2024')" in refused("predict", "model.npz", asked(["2024"]))


def test_dates_of_a_table_find_strings_of_a_text(quiet):
    fit = fitted_with(list(map(str, DAYS)), quiet)
    assert fit.row_labels.kind == "str"
    table_files.write_table("pairs.parquet", {"client": pa.array(DAYS), "service": [5, 5, 5]})
    found = parsed(quiet("predict", "model.npz", "pairs.parquet"))["prediction"]
    assert list(map(float, found)) == fit.predict(list(map(str, DAYS)), 5).tolist()


def test_text_of_spreadsheets(quiet):
    table_files.write_table("log.csv", LOG)
    text = Path("log.csv").read_bytes().replace(b"eu-1,", b"Z\xc3\xbcrich,")
    Path("log.csv").write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    quiet("fit", "log.csv", *ALL_NAMED, *SMALL, "-o", "model.npz")
    assert fastemf.load("model.npz").shape == (30, 8)


# --- rank ----------------------------------------------------------------------------------


def test_rankings_are_those_of_python(model, quiet):
    fit = fastemf.load(model)
    best = fit.rank(["eu-3", "eu-7"], 2, order="smallest")
    found = parsed(quiet(*RANK, model, "eu-3", "eu-7", "-n", "2"))
    assert found["client"] == ["eu-3", "eu-3", "eu-7", "eu-7"]
    assert found["place"] == ["1", "2", "1", "2"]
    assert found["service"] == best.cols.ravel().tolist()
    assert list(map(float, found["prediction"])) == best.values.ravel().tolist()
    every = parsed(quiet("rank", model, "--order", "largest", "-n", "100"))
    best = fit.rank(None, 8, order="largest")
    assert every["service"] == best.cols.ravel().tolist()
    assert every["client"] == np.repeat(fit.row_labels.values, 8).tolist()


def test_rows_may_follow_options(model, quiet):
    expected = quiet(*RANK, model, "eu-3", "eu-7", "-n", "2")
    assert quiet(*RANK, model, "-n", "2", "eu-3", "eu-7") == expected
    assert quiet(*RANK, model, "eu-3", "-n", "2", "eu-7") == expected
    assert quiet(*RANK, "-n", "2", model, "eu-3", "eu-7") == expected


def test_ranking_without_what_was_seen(model, quiet):
    fit = fastemf.load(model)
    best = fit.rank(None, 3, order="smallest", seen=pa.table(LOG))
    expected = [label for label in best.cols.ravel().tolist() if label is not None]
    pairs = {"client": LOG["client"], "service": LOG["service"]}
    table_files.write_table("pairs.csv", pairs)  # values are not needed
    renamed = {"a": LOG["service"], "b": LOG["client"], "c": LOG["ms"], "d": LOG["ms"]}
    table_files.write_table("renamed.csv", renamed)
    for seen in (["log.csv"], ["pairs.csv"], ["renamed.csv", "--rows", "b", "--cols", "a"]):
        found = parsed(quiet(*RANK, model, "-n", "3", "--seen", *seen))
        assert found["service"] == expected


def test_levels_are_told_by_either_name(levels_model, quiet):
    quiet("levels", "log.csv", *SMALL, "--at", "0.1", "0.9", "-o", "new.npz")
    for found, expected in zip(
        fastemf.load("new.npz").fits, fastemf.load(levels_model).fits, strict=True
    ):
        assert found.omega == expected.omega
        np.testing.assert_array_equal(found.X, expected.X)


def test_ranking_by_one_of_several_levels(levels_model, quiet, refused):
    best = fastemf.load(levels_model).rank(["eu-3"], 3, order="smallest", level=0.9)
    found = parsed(quiet(*RANK, levels_model, "eu-3", "-n", "3", "--level", "0.9"))
    assert found["service"] == best.cols[0].tolist()
    assert list(map(float, found["prediction"])) == best.values[0].tolist()
    message = refused(*RANK, levels_model, "eu-3")
    assert message == "levels.npz has several levels (0.1, 0.9): choose one with --level"
    message = refused(*RANK, levels_model, "eu-3", "--level", "0.3")
    assert "must be one of the levels fitted, 0.1, 0.9, got 0.3" in message


# --- evaluate -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["model", "levels_model"])
def test_an_evaluation_is_that_of_python(kind, quiet, refused, request):
    path = request.getfixturevalue(kind)
    table_files.write_table("held.csv", log_columns(seed=3))
    expected = fastemf.load(path).evaluate("held.csv")
    assert quiet("evaluate", path, "held.csv") == f"{expected}\n"
    facts = json.loads(quiet("evaluate", path, "held.csv", "--json"))
    assert [list(score.values()) for score in facts["scores"]] == [[*s] for s in expected.scores]
    assert facts["verdict"] == expected.verdict().splitlines()
    assert (facts["observations"], facts["left_out"]) == (150, 0)
    other = dict(zip(("who", "what", "long"), log_columns(seed=3).values(), strict=True))
    table_files.write_table("renamed.csv", other)
    assert quiet("evaluate", path, "renamed.csv") == f"{expected}\n"
    table_files.write_table("wide.csv", other | {"when": np.arange(150)})
    named = ["--rows", "who", "--cols", "what", "--values", "long"]
    assert quiet("evaluate", path, "wide.csv", *named) == f"{expected}\n"
    message = refused("evaluate", path, "wide.csv")
    assert message == "name the columns of wide.csv with --rows, --cols, --values; there are " + (
        "who, what, long, when"
    )


def test_an_evaluation_of_newcomers_and_weights(model, quiet, refused):
    held = log_columns(seed=3)
    held["client"] = np.where(np.arange(150) < 5, "mars", held["client"])
    table_files.write_table("held.csv", held | {"n": 1 + np.arange(150) % 2})
    assert refused("evaluate", model, "held.csv") == (
        "held.csv: unknown labels: 1 in rows ('mars')"
    )
    fit = fastemf.load(model)
    for unknown in ("nan", "model"):
        found = quiet("evaluate", model, "held.csv", "--unknown", unknown, "--weights", "n")
        assert found == f"{fit.evaluate('held.csv', unknown=unknown, weights='n')}\n"
    assert "(5 of unknown labels left out)" in quiet(
        "evaluate", model, "held.csv", "--unknown", "nan"
    )


def test_a_matrix_is_evaluated_in_its_order(quiet):
    rng = np.random.default_rng(0)
    matrix = sp.coo_array(rng.random((9, 7)) * (rng.random((9, 7)) < 0.8))
    scipy.io.mmwrite("R.mtx", matrix)
    quiet("fit", "R.mtx", *SMALL, "-o", "matrix.npz")
    expected = fastemf.load("matrix.npz").evaluate("R.mtx")
    assert quiet("evaluate", "matrix.npz", "R.mtx") == f"{expected}\n"


# --- values that are limits ------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
@pytest.mark.parametrize(
    ("option", "side"), [("--censored-above", "right"), ("--censored-below", "left")]
)
@pytest.mark.parametrize("command", ["fit", "levels"])
def test_limits_are_told_as_in_python(log, command, option, side, quiet):
    lines = Path("log.csv").read_text().splitlines()
    values = [float(line.split(",")[2]) for line in lines[1:]]
    limit = float(np.quantile(values, 0.9 if side == "right" else 0.1))
    beyond = [value >= limit if side == "right" else value <= limit for value in values]
    marked = [
        f"{line},{side if is_limit else ''}"
        for line, is_limit in zip(lines[1:], beyond, strict=True)
    ]
    Path("marked.csv").write_text("\n".join([f"{lines[0]},late", *marked]) + "\n")
    at = ["--omega", "0.4"] if command == "fit" else ["--omegas", "0.4", "0.6"]
    quiet(command, "log.csv", *SMALL, *at, option, repr(limit), "-o", "limit.npz")
    quiet(command, "marked.csv", *SMALL, *at, "--censored", "late", "-o", "marks.npz")
    if command == "fit":
        expected = fastemf.complete("log.csv", 0.4, censored=(side, limit), **NAMES, **FITTED)
    else:
        expected = fastemf.complete_levels(
            "log.csv", (0.4, 0.6), censored=(side, limit), **NAMES, **FITTED
        )
    assert (expected.fits[0] if command == "levels" else expected).imputation is not None
    cells = expected.axes[0].ids()[:5], expected.axes[1].ids()[:5]
    for name in ("limit.npz", "marks.npz"):
        found = fastemf.load(name)
        np.testing.assert_array_equal(found.predict(*cells), expected.predict(*cells))


@pytest.mark.parametrize(
    "two",
    [
        ("--censored-above", "3", "--censored", "late"),
        ("--censored-below", "3", "--censored", "late"),
        ("--censored-above", "3", "--censored-below", "1"),
    ],
)
def test_two_ways_to_tell_of_limits_are_refused(two, log, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["fit", log, *two, "-o", "x.npz"])
    told = capsys.readouterr().err
    assert f"argument {two[2]}: not allowed with argument {two[0]}" in told


def test_an_update_asks_for_the_limits_of_its_model(log, day_two, quiet, capsys):
    limit = repr(float(np.quantile(LOG["ms"], 0.8)))
    quiet("fit", log, *SMALL, "--censored-above", limit, "-o", "limits.npz")
    for data, options in (("two.csv", []), (log, ["--all"])):
        update = ["update", "limits.npz", data, *options, "-o", "x.npz", "--force"]
        assert main(update) == 0
        told = capsys.readouterr().err
        assert f"those of {data} are taken as they are: say which are limits" in told
        assert main([*update, "--censored-above", limit]) == 0
        assert "say which are limits" not in capsys.readouterr().err


@pytest.mark.thorough
def test_quantiles_are_updated_too(quiet):
    R = fastemf.datasets.make_skewed(40, 30, rank=1, density=0.5, random_state=0).R.tocoo()
    rows, cols = (np.char.add(name, part.astype(str)) for name, part in
                  zip(("r", "c"), R.coords, strict=True))  # fmt: skip
    whole = {"client": rows, "service": cols, "ms": R.data}
    old = ~np.isin(rows, ("r0", "r1"))
    table_files.write_table("old.csv", {name: part[old] for name, part in whole.items()})
    table_files.write_table("all.csv", whole)
    quiet("quantiles", "old.csv", "--at", "0.5", "0.8", "-k", "1", "--reg", "noise", "-o", "q.npz")
    out = quiet("update", "q.npz", "all.csv", "-o", "more.npz")
    assert "2 new rows" in out
    assert f"left out: {np.count_nonzero(old)} of old rows; --all refits with all data" in out
    quiet("update", "q.npz", "all.csv", "--all", "-o", "new.npz")
    expected = fastemf.complete_quantiles("all.csv", (0.5, 0.8), 1, **NAMES)
    found = fastemf.load("new.npz")
    np.testing.assert_array_equal(found.predict("r1", "c2"), expected.predict("r1", "c2"))
    few = np.isin(rows, [f"r{number}" for number in range(15)])
    table_files.write_table("few.csv", {name: part[few] for name, part in whole.items()})
    out = quiet("update", "new.npz", "few.csv", "--all", "-o", "lost.npz")
    assert "the old model's 25 rows that these data lack are gone" in out


# --- texts that are written in another way ---------------------------------------------------


def test_separators_and_decimal_points_of_other_places(model, quiet, refused, monkeypatch):
    text = Path("log.csv").read_text()
    head, *lines = text.replace('"', "").splitlines()
    local = [head.replace(",", ";"), *(";".join(x.split(",")).replace(".", ",") for x in lines)]
    Path("local.csv").write_text("\n".join(local) + "\n")
    told = ["--sep", ";", "--decimal", ","]
    message = refused("fit", "local.csv", *ALL_NAMED, *SMALL, "-o", "new.npz")
    assert "its header looks separated by ';'" in message
    assert "--sep ';' reads it, with --decimal ," in message
    quiet("fit", "local.csv", *told, *SMALL, "-o", "new.npz")
    same_fit("new.npz", fastemf.load(model))
    Path("local.csv.gz").write_bytes(gzip.compress(Path("local.csv").read_bytes()))
    quiet("fit", "local.csv.gz", *told, *SMALL, "-o", "new.npz", "--force")
    same_fit("new.npz", fastemf.load(model))
    expected = quiet("predict", model, "log.csv")
    assert quiet("predict", model, "local.csv", *told) == expected
    assert quiet("evaluate", model, "local.csv", *told) == quiet("evaluate", model, "log.csv")
    seen = [*RANK, model, "eu-3", "--seen"]
    assert quiet(*seen, "local.csv", *told) == quiet(*seen, "log.csv")
    piped = io.TextIOWrapper(io.BytesIO(Path("local.csv").read_bytes()))
    monkeypatch.setattr(sys, "stdin", piped)
    assert quiet("predict", model, "-", *told) == expected
    assert refused("predict", model, "log.csv", "--sep", "::") == (
        "--sep must be one character, got '::'"
    )
    assert "--sep and --decimal are for texts" in refused(
        "predict", model, "log.parquet", "--sep", ";"
    )
    assert refused("predict", model, "none.csv", "--sep", ";") == (
        "none.csv: No such file or directory"
    )


def test_the_ending_alone_says_what_separates(model, quiet):
    columns = LOG | {"ms": [str(value).replace(".", ",") for value in LOG["ms"]]}
    Path("x.tsv.d").mkdir()
    for path in ("x.tsv.d/log.csv", "x.tsv", "x.tsv.csv"):
        table_files.write_table(path, columns)
        quiet("fit", path, "--decimal", ",", *SMALL, "-o", "new.npz", "--force")
        same_fit("new.npz", fastemf.load(model))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
@pytest.mark.parametrize("packed", [False, True])
def test_a_named_pipe_is_read_once(packed, quiet, refused):
    text = "".join(";".join(map(str, line)) + "\n" for line in zip(*LOG.values(), strict=True))
    raw = f"client;service;ms\n{text}".encode()
    name = "pipe.csv.gz" if packed else "pipe.csv"
    os.mkfifo(name)
    where = ["store", "build", "-o", "none", *ALL_NAMED]
    for told in ([], ["--sep", ";"]):
        assert refused(*where, name, *told) == f"{name}: expected a regular file"
    content = gzip.compress(raw) if packed else raw
    fit = ["fit", name, "--sep", ";", *SMALL, "--reg", "1", "-o", "piped.npz"]
    ends = [(Path(name).write_bytes, content), (lambda argv: quiet(*argv), fit)]
    threads = [threading.Thread(target=end, args=[what], daemon=True) for end, what in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()  # waiting for another writer
    table_files.write_table("log.csv", LOG)
    same_fit("piped.npz", by_api(reg=1))


def test_a_first_line_of_data_is_not_taken_for_names(model, quiet, refused, monkeypatch):
    lines = Path("log.csv").read_text().replace('"', "").splitlines()[1:]
    bare = "\n".join(lines) + "\n"
    Path("bare.csv").write_text(bare)
    value = lines[0].split(",")[2]
    mended = (
        "looks like data, not like column names: it would give the name {} for the values; put a "
        "line of names before it, or give those it has with --rows, --cols and --values"
    )
    expected = f"bare.csv: the first line {mended.format(repr(value))}"
    for command in ("fit", "levels", "quantiles"):
        assert refused(command, "bare.csv", *SMALL, "-o", "new.npz") == expected
    assert refused("evaluate", model, "bare.csv") == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bare.encode())))
    told = refused("fit", "-", *SMALL, "-o", "new.npz")
    assert told.startswith("standard input: the first line looks like data")
    numbers = [("a;b;1,5", ["--decimal", ","])]
    numbers += [(f"a;b;{value}", []) for value in ("-3", " 2.5e-3", "nan", "-inf")]
    for first, option in numbers:
        Path("local.csv").write_text(f"{first}\nc;d;2\n")
        told = refused("fit", "local.csv", "--sep", ";", *option, *SMALL, "-o", "new.npz")
        assert mended.format(repr(first.split(";")[2])) in told
    # Whoever gives names has them, and other formats have names of their own.
    numbered = dict(zip(("1", "2", "3"), LOG.values(), strict=True))
    table_files.write_table("numbered.csv", numbered)
    names = ["--rows", "1", "--cols", "2", "--values", "3"]
    quiet("fit", "numbered.csv", *names, *SMALL, "-o", "numbered.npz")
    np.testing.assert_array_equal(fastemf.load("numbered.npz").X, fastemf.load(model).X)
    assert "looks like data" in refused("fit", "numbered.csv", *SMALL, "-o", "new.npz")
    parquet.write_table(pa.table(numbered), "numbered.parquet")
    quiet("fit", "numbered.parquet", *SMALL, "-o", "parquet.npz")
    np.testing.assert_array_equal(fastemf.load("parquet.npz").X, fastemf.load(model).X)


def test_a_first_line_of_a_pair_is_not_taken_for_names(model, quiet, refused):
    Path("pairs.csv").write_text("eu-3,srv1\neu-4,srv2\n")
    expected = (
        "pairs.csv: the first line looks like data, not like column names: it would give the name "
        "'eu-3' for the rows, which is one of them; put a line of names before it, or give those "
        "it has with --rows and --cols"
    )
    assert refused("predict", model, "pairs.csv") == expected
    assert refused(*RANK, model, "eu-3", "--seen", "pairs.csv") == expected
    told = quiet("predict", model, "pairs.csv", "--rows", "eu-3", "--cols", "srv1")
    assert len(parsed(told)["eu-3"]) == 1
    Path("pairs.csv").write_text("eu-3,server\neu-4,srv2\n")
    quiet("predict", model, "pairs.csv")
    rng = np.random.default_rng(0)
    scipy.io.mmwrite("R.mtx", sp.coo_array(rng.random((9, 7)) + 1))
    quiet("fit", "R.mtx", *SMALL, "-o", "matrix.npz")
    Path("pairs.csv").write_text("0,6\n8,1\n")
    assert "the first line looks like data" in refused("predict", "matrix.npz", "pairs.csv")
    parquet.write_table(pa.table({"0": [8], "1": [6]}), "pairs.parquet")
    quiet("predict", "matrix.npz", "pairs.parquet")
    Path("pairs.csv").write_text("0,7\n8,1\n")  # no column 7
    quiet("predict", "matrix.npz", "pairs.csv")


@pytest.mark.parametrize(
    "clients",
    [
        pa.array([1, 2**64 - 1, 2], pa.uint64()),
        pa.array([1, -(2**63), 2]),
        pa.array([datetime.date(2026, 1, day) for day in (1, 2, 3)]),
    ],
)
def test_a_first_line_of_any_label_is_not_taken_for_names(clients, quiet, refused):
    fitted_with(clients, quiet, ".parquet")
    for client in clients.to_pylist():
        Path("pairs.csv").write_text(f"{client},5\n{client},6\n")
        assert f"would give the name '{client}'" in refused("predict", "model.npz", "pairs.csv")
    for client in (3, 2**64, -(2**63) - 1, "9" * 5000):
        Path("pairs.csv").write_text(f"{client},5\n{clients[0]},6\n")
        assert len(parsed(quiet("predict", "model.npz", "pairs.csv"))["5"]) == 1


@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
def test_stores_of_texts_of_other_places(log, quiet, refused):
    head, *lines = Path(log).read_text().replace('"', "").splitlines()
    local = [head.replace(",", ";"), *(";".join(x.split(",")).replace(".", ",") for x in lines)]
    Path("days").mkdir()
    Path("days/1.csv").write_text("\n".join(local[:100]) + "\n")
    Path("days/2.csv.gz").write_bytes(gzip.compress("\n".join([local[0], *local[100:]]).encode()))
    told = ["--sep", ";", "--decimal", ","]
    message = refused("store", "build", "days/1.csv", "-o", "none", *ALL_NAMED)
    assert message.startswith("days/1.csv: expected a table: ")
    assert "its header looks separated by ';'" in message
    assert "--sep ';' reads it, with --decimal ," in message
    assert "invalid value" in refused(
        "store", "build", "days/1.csv", "-o", "none", *ALL_NAMED, "--sep", ";"
    )
    quiet("store", "build", log, "-o", "usual", *ALL_NAMED)
    quiet("store", "build", "days", "-o", "folder", *ALL_NAMED, *told)
    quiet("store", "build", "days/1.csv", "-o", "grown", *ALL_NAMED, *told)
    with pytest.raises(ValueError, match="its header looks separated by ';'"):
        fastemf.store.append("grown", "days/2.csv.gz", **NAMES)
    quiet("store", "append", "grown", "days/2.csv.gz", *ALL_NAMED, *told)
    expected = fastemf.complete("usual", 0.5, reg=1, **FITTED)
    for path in ("folder", "grown"):
        found = fastemf.complete(path, 0.5, reg=1, **FITTED)
        np.testing.assert_array_equal(found.X, expected.X)
        assert found.col_labels.values.tolist() == expected.col_labels.values.tolist()
    where = ["store", "build", "-o", "none", *ALL_NAMED]
    assert refused(*where, log, "--decimal", "") == "--decimal must be one character, got ''"
    parquet.write_table(pa.table(LOG), "log.parquet")
    assert "--sep and --decimal are for texts" in refused(*where, "log.parquet", "--sep", ";")
    for told in ([], ["--sep", ";"]):
        assert refused(*where, "none.csv", *told) == "none.csv: no such file"
        assert refused(*where, log, "days", *told) == "days: expected a regular file"


def test_a_store_of_zstd(log, quiet):
    with pa.CompressedOutputStream("log.csv.zst", "zstd") as file:
        file.write(Path(log).read_bytes())
    quiet("store", "build", "log.csv.zst", "-o", "store", *ALL_NAMED)
    assert fastemf.store.open("store").size == 150


# --- update ---------------------------------------------------------------------------------


@pytest.fixture
def day_two():
    """Lines of two new clients, one of them also of a new service, and of an old client."""
    columns = {
        "client": ["us-1", "us-1", "us-2", "us-2", "eu-1", "us-3"],
        "service": ["srv1", "srv2", "srv1", "srv99", "srv1", "srv99"],
        "ms": [10.0, 20.0, 30.0, 40.0, 50.0, 60.0],
    }
    table_files.write_table("two.csv", columns)
    return {name: np.array(column, object) for name, column in columns.items()}


@pytest.mark.parametrize("kind", ["model", "levels_model"])
def test_an_update_folds_new_rows_in_as_python_does(kind, day_two, quiet, request):
    path = request.getfixturevalue(kind)
    model = fastemf.load(path)
    out = quiet("update", path, "two.csv", "-o", "new.npz")
    assert "update    new rows folded in" in out
    assert "2 new rows, 3 observations" in out
    assert "left out: 1 of old rows and 2 of new columns" in out
    lines = pa.table({name: column[:3].tolist() for name, column in day_two.items()})
    expected = model.extend(lines)
    found = fastemf.load("new.npz")
    ids = expected.row_labels.values
    assert found.row_labels.values.tolist() == ids.tolist()
    assert ids[-2:].tolist() == ["us-1", "us-2"]
    np.testing.assert_array_equal(found.predict_block(ids), expected.predict_block(ids))
    facts = json.loads(quiet("update", path, "two.csv", "-o", "again.npz", "--json"))
    assert facts["left_out"] == {"of old rows": 1, "of new columns": 2}
    assert (facts["new_rows"], facts["observations"]) == (2, 3)


def test_an_update_with_all_data_is_a_refit_from_the_old_model(model, day_two, quiet):
    together = {
        name: np.concatenate([LOG[name].astype(object), column]) for name, column in day_two.items()
    }
    together["ms"] = together["ms"].astype(float)
    table_files.write_table("all.csv", together)
    out = quiet("update", model, "all.csv", "--all", "-o", "new.npz")
    assert "update    refit from the old model" in out
    old = fastemf.load(model)
    with warnings.catch_warnings(action="ignore"):
        fit = fastemf.complete("all.csv", old.omega, old.k, **NAMES, intercepts=True, init=old)
    same_fit("new.npz", fit)


@pytest.mark.parametrize("kind", ["model", "levels_model"])
def test_a_store_that_was_appended_to_is_all_data(kind, day_two, quiet, refused, request):
    path = request.getfixturevalue(kind)
    columns = ["--rows", "client", "--cols", "service", "--values", "ms"]
    quiet("store", "build", "log.csv", "-o", "log.store", *columns)
    quiet("store", "append", "log.store", "two.csv", *columns)
    assert "refitted, with --all" in refused("update", path, "log.store", "-o", "new.npz")
    out = quiet("update", path, "log.store", "--all", "-o", "new.npz")
    assert "update    refit from the old model" in out
    together = {
        name: np.concatenate([LOG[name].astype(object), column]) for name, column in day_two.items()
    }
    together["ms"] = together["ms"].astype(float)
    table_files.write_table("all.csv", together)
    quiet("update", path, "all.csv", "--all", "-o", "expected.npz")
    found, expected = fastemf.load("new.npz"), fastemf.load("expected.npz")
    assert found.row_labels == expected.row_labels
    assert found.row_labels.values.tolist()[-3:] == ["us-1", "us-2", "us-3"]
    ids = expected.row_labels.values
    np.testing.assert_array_equal(found.predict_block(ids), expected.predict_block(ids))


def test_all_data_of_several_levels(levels_model, quiet):
    quiet("update", levels_model, "log.csv", "--all", "-o", "new.npz")
    old = fastemf.load(levels_model)
    with warnings.catch_warnings(action="ignore"):
        levels = fastemf.complete_levels(
            "log.csv", old.omegas, 2, **NAMES, intercepts=True, init=old.fits[0]
        )
    for found, fit in zip(fastemf.load("new.npz").fits, levels.fits, strict=True):
        np.testing.assert_array_equal(found.to_dense(), fit.to_dense())


def test_updates_that_cannot_be(model, quiet, refused):
    message = refused("update", model, "log.csv", "-o", "new.npz")
    assert message.startswith("log.csv has no observation of a new row in a column of the model")
    assert refused("update", model, "log.csv", "-o", model).endswith("--force replaces it")
    scipy.io.mmwrite("R.mtx", sp.random_array((30, 8), density=0.5))
    assert "R.mtx is a matrix" in refused("update", model, "R.mtx", "-o", "new.npz")
    quiet("fit", "R.mtx", *SMALL, "-o", "matrix.npz")
    assert "told from old ones by labels" in refused(
        "update", "matrix.npz", "log.csv", "-o", "new.npz"
    )


# --- quantiles ------------------------------------------------------------------------------

TAUS = (0.5, 0.7)
AT = ["--at", *map(str, TAUS)]


def quantiles_by_api(R="log.csv", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fastemf.complete_quantiles(R, TAUS, **{"k": 2, "max_iter": 6} | options)


def same_quantiles(path, expected):
    found = fastemf.load(path)
    rows = expected.axes[0].ids()
    np.testing.assert_array_equal(found.predict_block(rows), expected.predict_block(rows))
    assert found.promises == expected.promises
    assert (found.row_labels, found.col_labels) == (expected.row_labels, expected.col_labels)


@pytest.fixture(scope="session")
def made_quantiles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantiles")
    table_files.write_table(str(folder / "log.csv"), LOG)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        command = ["quantiles", str(folder / "log.csv"), *AT, *SMALL]
        assert main([*command, "-o", str(folder / "q.npz")]) == 0
    return folder / "q.npz"


@pytest.fixture
def quantiles_model(log, made_quantiles):
    return shutil.copy(made_quantiles, "q.npz")


@pytest.mark.compiled
def test_quantiles_are_those_of_python(quantiles_model, quiet):
    expected = quantiles_by_api(**NAMES)
    same_quantiles(quantiles_model, expected)
    text = quiet("quantiles", "log.csv", *AT, *SMALL, "-o", "again.npz")
    assert text.replace("again.npz", "q.npz") == quiet("info", quantiles_model)
    for promise in expected.promises:
        low, high = promise.interval
        share = f"p{100 * promise.tau:g}       {promise.coverage:.4f} of {promise.cells} cells"
        assert f"{share} out of fold lie at or below (95 %: {low:.4f} to {high:.4f})" in text
        losses = f"pinball loss {promise.pinball:.4g}; constant {promise.constant:.4g}, column"
        assert losses in text
    facts = json.loads(quiet("info", quantiles_model, "--json"))
    assert [line["tau"] for line in facts["quantiles"]] == list(TAUS)


@pytest.mark.compiled
def test_options_reach_the_quantiles(quiet):
    table_files.write_table("log.csv", LOG | {"calls": 1 + np.arange(150) % 3})
    told = ["--weights", "calls", "--reg", "0.5", "--tol", "0.01", "--seed", "3", "--jobs", "1"]
    quiet("quantiles", "log.csv", *AT, *SMALL, *told, "--no-intercepts", "-o", "q.npz")
    options = {"reg": 0.5, "tol": 0.01, "random_state": 3, "intercepts": False}
    same_quantiles("q.npz", quantiles_by_api(**NAMES, weights="calls", **options))


@pytest.mark.compiled
def test_quantiles_of_a_store_and_from_checkpoints(quantiles_model, quiet, refused):
    quiet("store", "build", "log.csv", *ALL_NAMED, "-o", "store")
    told = ["quantiles", "store", *AT, *SMALL, "--checkpoint", "state.npz"]
    quiet(*told, "-o", "stored.npz")
    expected = fastemf.load(quantiles_model)
    same_quantiles("stored.npz", expected)
    assert len(list(Path().glob("state-*.npz"))) == sum(map(len, expected.fits))
    assert "exists" in refused(*told, "-o", "again.npz")
    quiet(*told, "--resume", "-o", "again.npz")
    same_quantiles("again.npz", expected)


@pytest.mark.compiled
def test_quantiles_are_predicted_and_ranked_as_by_python(quantiles_model, quiet, refused):
    quantiles = fastemf.load(quantiles_model)
    found = parsed(quiet("predict", quantiles_model, "log.csv"))
    assert list(found) == ["client", "service", "p50", "p70"]
    predicted = np.array([found["p50"], found["p70"]], float).T
    np.testing.assert_array_equal(predicted, quantiles.predict(LOG["client"], LOG["service"]))
    best = quantiles.rank(["eu-3", "eu-7"], 3, order="smallest", level=0.7)
    for option in ("--at", "--level"):
        told = ["eu-3", "eu-7", "-n", "3", option, "0.7"]
        ranked = parsed(quiet(*RANK, quantiles_model, *told))
        assert ranked["service"] == best.cols.ravel().tolist()
        assert list(map(float, ranked["prediction"])) == best.values.ravel().tolist()
    message = refused(*RANK, quantiles_model, "eu-3")
    assert message == "q.npz has quantiles (0.5, 0.7): choose one with --at"
    message = refused(*RANK, quantiles_model, "eu-3", "--at", "0.9")
    assert message == "level must be one of the quantiles fitted, 0.5, 0.7, got 0.9"


@pytest.mark.compiled
def test_quantiles_are_evaluated_as_by_python(quantiles_model, quiet, refused):
    table_files.write_table("held.csv", log_columns(seed=3))
    model = fastemf.load(quantiles_model)
    expected = model.evaluate("held.csv", **NAMES)
    assert quiet("evaluate", quantiles_model, "held.csv") == f"{expected}\n"
    facts = json.loads(quiet("evaluate", quantiles_model, "held.csv", "--json"))
    assert facts["observations"] == expected.observations
    assert facts["scores"] == [score._asdict() for score in expected.scores]
    assert facts["verdict"] == expected.verdict().splitlines()
    assert [line["deciles"] for line in facts["quantiles"]] == [
        list(one.deciles) for one in expected.promises
    ]
    more = log_columns(seed=3)
    more["client"][0] = "mars"
    table_files.write_table("more.csv", more)
    assert "unknown labels: 1 in" in refused("evaluate", quantiles_model, "more.csv")
    for unknown in ("nan", "model"):
        found = quiet("evaluate", quantiles_model, "more.csv", "--unknown", unknown)
        assert found == f"{model.evaluate('more.csv', unknown=unknown)}\n"


def test_quantiles_beyond_the_data_say_what_is_possible(log, refused):
    message = refused("quantiles", log, "--at", "0.5", "0.99", *SMALL, "-o", "q.npz")
    assert "taus must leave at least 20 cells on the rarer side of each, and 0.99" in message
    assert "would be possible" in message


# --- levels, select, info, demo ------------------------------------------------------------


def test_levels_are_those_of_python(levels_model, quiet):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = fastemf.complete_levels("log.csv", (0.1, 0.9), **NAMES, **FITTED)
    found = fastemf.load(levels_model)
    for ours, theirs in zip(found.fits, expected.fits, strict=True):
        np.testing.assert_array_equal(ours.X, theirs.X)
    facts = json.loads(quiet("info", levels_model, "--json"))
    assert [level["omega"] for level in facts["levels"]] == [0.1, 0.9]


def test_select_is_that_of_python(log, quiet):
    grid = ["--ks", "1", "2", "--regs", "auto", "0.1", "--folds", "2", "--max-iter", "2"]
    text = quiet("select", log, *grid, "-o", "best.npz", "--plot", "picture.png")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = fastemf.select(
            log, 0.5, [1, 2], ["auto", 0.1], 2, **NAMES, intercepts=True, max_iter=2
        )
    assert text == f"{expected}\n"
    same_fit("best.npz", expected.fit)
    assert Path("picture.png").read_bytes()[:4] == b"\x89PNG"
    facts = json.loads(quiet("select", log, *grid, "--json"))
    assert [line["loss"] for line in facts["table"]] == [line.loss for line in expected.table]
    assert facts["best"]["k"] == expected.best.k
    assert facts["best"]["reg"] == expected.best.reg


def test_pictures_are_checked_before_the_work(log, refused, monkeypatch):
    assert "--plot must end in .png, .svg or .pdf, got a.npz" in refused(
        "select", log, "--plot", "a.npz"
    )
    Path("there.png").write_bytes(b"old")
    assert "--plot there.png exists" in refused("select", log, "--plot", "there.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "fastemf[plot]" in refused("select", log, "--plot", "new.png")


def test_json_has_the_facts_of_the_text(log, quiet):
    fitted = quiet("fit", log, *SMALL, "-o", "model.npz")
    facts = json.loads(quiet("info", "model.npz", "--json"))
    assert quiet("info", "model.npz") == fitted == render(facts) + "\n"
    fit = fastemf.load("model.npz")
    assert facts["model"] == "model.npz"
    assert facts["shape"] == [30, 8]
    assert facts["rows"] == {"name": "client", "first": ["eu-0", "eu-1", "eu-2"]}
    assert facts["rank"] == 2
    assert facts["levels"][0]["omega"] == fit.omega
    assert facts["levels"][0]["mu"] == fit.mu
    assert facts["levels"][0]["reg"] == fit.reg
    assert facts["levels"][0]["sweeps"] == fit.n_iter
    assert facts["levels"][0]["objective"] == fit.history[-1].objective
    assert json.loads(quiet("fit", log, *SMALL, "-o", "model.npz", "--force", "--json")) == facts


@pytest.fixture(scope="session")
def tuned(tmp_path_factory):
    """A folder with models of a log that is long enough to tune by, of one level and of two."""
    folder = tmp_path_factory.mktemp("tuned")
    log, model, levels = (str(folder / name) for name in ("log.csv", "model.npz", "levels.npz"))
    rng = np.random.default_rng(0)
    i, j = (index.ravel() for index in np.indices((30, 16)))
    ms = rng.gamma(2, 20, 30)[i] * rng.gamma(2, 1, 16)[j] * rng.lognormal(0, 0.5, i.size)
    table_files.write_table(log, {"client": i, "service": j, "ms": ms})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main(["fit", log, "-k", "2", "-o", model]) == 0
        assert main(["levels", log, "-k", "2", "--omegas", "0.1", "0.9", "-o", levels]) == 0
    return folder


def test_a_tuned_fit_is_that_of_python_and_prints_its_verdict(tuned, quiet):
    log = str(tuned / "log.csv")
    out = quiet("fit", log, "-k", "2", "-o", "model.npz")
    fit = by_api(log, max_iter=100)
    same_fit("model.npz", fit)
    assert fastemf.load("model.npz").constant == fit.constant
    *verdict, losses = [line.strip() for line in out.splitlines()[-3:]]
    assert verdict == fit.tuning.verdict().splitlines()
    told = [("fit", fit.tuning.best.loss), *((b.name, b.loss) for b in fit.tuning.baselines)]
    listed = ", ".join(f"{name} {loss:.4g}" for name, loss in told)
    assert losses == f"mean loss of what was set aside: {listed}"


def test_info_lists_what_was_compared(tuned, quiet):
    model = str(tuned / "model.npz")
    tuning = fastemf.load(model).tuning
    facts = json.loads(quiet("info", model, "--json"))
    told = facts["levels"][0]["tuning"]
    assert told["verdict"] == tuning.verdict().splitlines()
    assert [step["loss"] for step in told["steps"]] == [step.loss for step in tuning.steps]
    assert [step["reg"] is None for step in told["steps"]] == [not s.rank for s in tuning.steps]
    assert told["chosen"] == tuning.chosen
    over = [list(table.over) for table in fastemf.load(model).tables]
    assert facts["levels"][0]["tables"] == over
    assert told["baselines"] == {one.name: one.loss for one in tuning.baselines}
    assert (told["observations"], told["folds"]) == (tuning.cells, tuning.folds)
    text = quiet("info", model)
    assert text == render(facts, lists_steps=True) + "\n"
    table = text[text.index("family") :].splitlines()[1:]
    chosen = next(place for place, line in enumerate(table) if line.strip().startswith("* "))
    assert chosen == tuning.chosen
    assert f"{tuning.best.reg:.4g}" in table[chosen]
    assert f"row + column {tuning.baselines[2].loss:.4g}" in table[-1]


def test_levels_tell_their_worth_in_a_line_each(tuned, quiet):
    path = str(tuned / "log.csv")
    out = quiet("levels", path, "-k", "2", "--omegas", "0.1", "0.9", "-o", "levels.npz")
    told = [line.strip() for line in out.splitlines() if "held-out loss" in line]
    fits = fastemf.load("levels.npz").fits
    assert told == [fit.tuning.verdict().splitlines()[0] for fit in fits]
    assert "factors take" not in out


def test_the_ridge_is_a_rule_or_a_number(tuned, log, quiet):
    path = str(tuned / "log.csv")
    out = quiet("fit", path, "-k", "2", "--reg", "noise", "-o", "noise.npz")
    same_fit("noise.npz", by_api(path, reg="noise", max_iter=100))
    assert "held-out loss" not in out
    facts = json.loads(quiet("info", "noise.npz", "--json"))
    assert facts["levels"][0]["tuning"] is None
    # The short log is not tuned; it says so, and why.
    out = quiet("fit", log, *SMALL, "--reg", "auto", "-o", "auto.npz")
    same_fit("auto.npz", by_api(reg="noise"))
    assert "not tuned" in out
    assert "too few observations to tune by (150, of at least 400)" in quiet("info", "auto.npz")


@pytest.mark.compiled
def test_info_tells_what_quantiles_promise(quiet):
    R = fastemf.datasets.make_skewed(30, 20, rank=1, noise=0.3, density=0.9, random_state=0).R
    quantiles = fastemf.complete_quantiles(R, (0.5, 0.9), 1)
    quantiles.save("quantiles.npz")
    facts = json.loads(quiet("info", "quantiles.npz", "--json"))
    assert facts["fits"] == 20
    for told, promise in zip(facts["quantiles"], quantiles.promises, strict=True):
        assert told["coverage"] == promise.coverage
        assert tuple(told["deciles"]) == promise.deciles
    out = quiet("info", "quantiles.npz")
    assert re.search(r"p90 +0\.\d{4} of 540 cells out of fold lie at or below", out)
    assert "pinball loss" in out
    quantiles.fold_in(R.tocsr()[:3]).save("folded.npz")
    assert "not for these" in quiet("info", "folded.npz")


def test_info_shows_no_more_labels_than_there_are(quiet):
    fitted_with([7, 8, 9], quiet)
    out = quiet("info", "model.npz")
    assert re.search(r"rows +client: 7, 8, 9\n", out)
    assert re.search(r"cols +service: 0, 1, 2, …\n", out)


def test_example_data(quiet, refused):
    assert quiet("demo", "--out", "log.csv") == ""
    found = parsed(Path("log.csv").read_text())
    expected = fastemf.datasets.make_latencies(random_state=0)
    assert found["client"] == expected.client.tolist()
    assert list(map(float, found["ms"])) == expected.ms.tolist()
    assert "exists; --force replaces it" in refused("demo", "--out", "log.csv")
    quiet("demo", "--out", "log.csv", "--force", "--seed", "1")
    assert parsed(Path("log.csv").read_text())["client"] != found["client"]
    assert parsed(quiet("demo", "--out", "-"))["client"] == found["client"]


# --- what is wrong is said in one line -----------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "client,service,ms,note\na,b,1,x\n", [],
            "name the columns of bad.csv with --rows, --cols, --values; "
            "there are client, service, ms, note",
        ),
        (
            "client,service,ms\na,b,1\n", ["--rows", "client"],
            "name the columns of bad.csv with --cols, --values; there are client, service, ms",
        ),
        (
            "client,service,time\na,b,1\n", ALL_NAMED,
            "bad.csv has no column 'ms'; it has 'client', 'service', 'time'",
        ),
        ("client,service,ms\n", [], "bad.csv: expected lines after the header, got none"),
        ("", [], "bad.csv: expected a table: it is empty"),
        (
            "client,service,ms\na,b,1\n\na,c,fast\n", [],
            "column 'ms' must hold numbers, got 'fast' at line 4 of bad.csv",
        ),
        (
            "client,service,ms\na,b,1\na,,2\n", [],
            "column 'service' must have no nulls, got 1 null, first at line 3 of bad.csv",
        ),
        ("client,service,ms\na,b,1\na,c\n", [], "bad.csv: expected a table:"),
        ("client,service,ms\na,b,1\na,c,inf\n", [], "line 3 of bad.csv"),
        ("client;service;ms\na;b;1\n", [], "there are client;service;ms"),
    ],
)  # fmt: skip
def test_bad_tables(text, options, message, refused):
    Path("bad.csv").write_text(text)
    assert message in refused("fit", "bad.csv", "-k", "1", *options, "-o", "model.npz")


def test_bytes_that_are_no_text(refused):
    Path("bad.csv").write_bytes("client,service,ms\nZürich,b,1\n".encode("latin-1"))
    assert "bad.csv: expected a table:" in refused("fit", "bad.csv", "-k", "1", "-o", "model.npz")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.5, 2.5]), "column 'client' must hold integers, strings or dates as labels"),
        (pa.array([[1], [2]]), "column 'client' must hold integers, strings or dates as labels"),
        (pa.array([True, False]), "column 'client' must hold integers, strings or dates"),
        (pa.array(["a", None]), "column 'client' must have no nulls"),
    ],
)
def test_labels_of_other_types(column, message, refused, model):
    parquet.write_table(
        pa.table({"client": column, "service": ["a", "b"], "ms": [1, 2]}), "t.parquet"
    )
    assert message in refused("fit", "t.parquet", "-k", "1", "-o", "new.npz")
    table = pa.table({"client": column, "service": ["srv1", "srv2"]})
    parquet.write_table(table, "pairs.parquet")
    assert "rows must" in refused("predict", model, "pairs.parquet")


def test_mixed_labels_are_text(quiet):
    """CSV has no types: a column with one that is no integer is a column of strings."""
    fit = fitted_with(["1", "2", "x"], quiet)
    assert fit.row_labels.values.tolist() == ["1", "2", "x"]


def newer(path):
    arrays = dict(np.load(path))
    header = json.loads(arrays["header"].tobytes()) | {"version": 99}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez("newer.npz", **arrays)


def test_bad_models(model, refused):
    Path("text.npz").write_text("not a model")
    np.savez("foreign.npz", a=np.ones(3))
    Path("half.npz").write_bytes(Path(model).read_bytes()[:500])
    newer(model)
    for command in (["info"], ["predict"], RANK):
        rest = ["log.csv"] if command == ["predict"] else []
        for name, message in [
            ("text.npz", "text.npz is not a valid fastemf model: truncated, damaged, or another"),
            ("foreign.npz", "foreign.npz is not a valid fastemf model"),
            ("half.npz", "half.npz is not a valid fastemf model"),
            ("newer.npz", "format version 99, while this fastemf reads 1 to 6; upgrade fastemf"),
            ("none.npz", "none.npz: No such file or directory"),
            (".", ".: Is a directory"),
        ]:
            assert message in refused(*command, name, *rest)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["fit", "log.csv", "--omega", "2"], "omega must lie strictly between 0 and 1"),
        (["fit", "log.csv", "-k", "0", "--no-intercepts"], "k must be at least 1 (0 is intercepts"),
        (["fit", "log.csv", "-k", "-1"], "k must be at least 0, got -1"),
        (["fit", "log.csv", "-k", "9"], "k must be at most min(rows, columns) = 8"),
        (["fit", "log.csv", "--reg", "weak"], "reg must be"),
        (["fit", "log.csv", "--reg", "-1"], "reg must be"),
        (["fit", "log.csv", "--max-iter", "0"], "max_iter must be at least 1, got 0"),
        (["fit", "log.csv", "--jobs", "0"], "n_jobs must not be 0"),
        (["fit", "log.csv", "--seed", "-1"], "random_state"),
        (["fit", "log.csv", "--tol", "nan"], "tol must be"),
        (["fit", "log.csv", "--validation", "2"], "validation must be a share in (0, 1)"),
        (
            ["fit", "log.csv", "--coverage", "1"],
            "coverage must be a share strictly between 0 and 1",
        ),
        (["fit", "log.csv", "--coverage", "0.99"], "at least 20 are needed to measure it"),
        (["fit", "log.csv", "--coverage", "0.5", "--validation", "0.1"], "give one of them"),
        (["fit", "nothing.csv"], "nothing.csv: no such file"),
        (["fit", "log.txt"], "log.txt: no such file"),
        (["levels", "log.csv", "--omegas", "0.5"], "omegas must"),
        (["levels", "log.csv", "--omegas", "0.5", "0.5"], "omegas must"),
        (["select", "log.csv", "--folds", "1"], "folds must be at least 2, got 1"),
        (["select", "log.csv", "--ks", "-1"], "ks must be at least 0, got -1"),
        (["select", "log.csv", "--no-intercepts", "--ks", "0"], "ks must be at least 1 (0 is"),
    ],
)
def test_bad_values_of_options(argv, message, log, refused):
    assert message in refused(*argv, "-o", "new.npz")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["predict", "log.csv", "--clip", "3", "1"], "clip must"),
        (["predict", "log.csv", "--clip", "nan", "1"], "clip[0] must be finite"),
        (["rank", "eu-1", "-n", "0", "--order", "largest"], "n must be at least 1, got 0"),
        (
            ["rank", "eu-1", "--level", "0.7", "--order", "largest"],
            "level must be one of the levels fitted, 0.5, got 0.7",
        ),
        (["predict", "model.npz"], "is a matrix; pairs are a table with two columns"),
        (["predict", "log.csv", "-o", "out.txt"], "out.txt: the name must end in .csv, .tsv,"),
        (["predict", "log.csv", "--json", "-o", "out.csv"], "--out must end in .json with --json"),
    ],
)
def test_bad_questions(argv, message, model, refused):
    command, *rest = argv
    assert message in refused(command, model, *rest)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["fit"],
        ["fit", "log.csv"],
        ["guess"],
        ["fit", "log.csv", "-o", "m.npz", "--omega", "high"],
        ["fit", "log.csv", "-o", "m.npz", "--omega", "0.9", "--coverage", "0.9"],
        ["predict", "m.npz", "log.csv", "--clip", "0", "x"],
        ["rank", "m.npz", "--order", "best"],
        ["rank", "m.npz", "eu-1", "--what"],
        ["rank", "m.npz", "eu-1"],
        ["info", "m.npz", "other.npz"],
    ],
)
def test_what_cannot_be_parsed(argv, capsys):
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search("^fastemf.*: error: ", err, re.MULTILINE)


# --- where results go ----------------------------------------------------------------------


def outputs():
    return [
        (["fit", "log.csv", *SMALL], "out.npz"),
        (["levels", "log.csv", *SMALL], "out.npz"),
        (
            ["select", "log.csv", "--ks=1", "--regs=auto", "--folds=2", "--max-iter=2"],
            "out.npz",
        ),
        (["predict", "model.npz", "log.csv"], "out.csv"),
        ([*RANK, "model.npz"], "out.csv"),
        ([*RANK, "model.npz", "--json"], "out.json"),
        (["demo"], "out.csv"),
    ]


@pytest.mark.parametrize(("argv", "name"), outputs())
def test_nothing_is_replaced_unasked(argv, name, model, quiet, refused):
    Path(name).write_text("precious")
    assert refused(*argv, "-o", name) == f"--out {name} exists; --force replaces it"
    quiet(*argv, "-o", name, "--force")
    assert not Path(name).read_bytes().startswith(b"precious")
    assert {path.name for path in Path().iterdir()} == {"log.csv", "model.npz", name}


@pytest.mark.parametrize(("argv", "name"), outputs())
def test_places_that_are_none(argv, name, model, refused, monkeypatch):
    Path("folder").mkdir()
    assert refused(*argv, "-o", "folder", "--force") == "--out folder is a folder"
    message = refused(*argv, "-o", f"missing/{name}")
    assert message == f"--out missing/{name}: there is no such folder"
    if hasattr(os, "mkfifo"):
        os.mkfifo(name)
        assert refused(*argv, "-o", name, "--force") == f"--out {name} is not a regular file"
        Path(name).unlink()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert refused(*argv, "-o", name) == f"--out {name}: its folder cannot be written to"


def test_models_do_not_go_to_standard_output(log, refused):
    for command in ("fit", "levels", "select"):
        assert "--out must be a file, got - for" in refused(command, log, "-o", "-")


@pytest.mark.parametrize(("argv", "name"), [*outputs(), (["predict"], "out.parquet")])
@pytest.mark.parametrize("old", [None, "precious"])
def test_a_full_disk_leaves_what_was_there(argv, name, old, model, capsys, monkeypatch):
    if argv == ["predict"]:
        argv = ["predict", "model.npz", "log.csv"]

    class Full(io.FileIO):
        def write(self, data):
            if self.tell() + len(data) > 200:
                raise OSError(28, "No space left on device")
            return super().write(data)

    if old is not None:
        Path(name).write_text(old)
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    monkeypatch.setattr(whole_file.os, "fdopen", lambda fd, _: Full(fd, "w"))
    capsys.readouterr()
    assert main([*argv, "-o", name, "--force"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == f"fastemf: {name}: No space left on device"
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


# --- the streams ---------------------------------------------------------------------------


def test_warnings_are_lines(log, capsys):
    assert main(["fit", log, "-k", "2", "--max-iter", "2", "--tol", "0", "-o", "model.npz"]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r"fastemf: warning: .*max_iter.*\n", err)
    assert "did not converge in 2 sweeps" in out
    assert main(["fit", log, "-k", "2", "--max-iter", "200", "-o", "model.npz", "--force"]) == 0
    assert capsys.readouterr().err == ""


def test_bars_are_for_terminals(log, capsys, monkeypatch):
    argv = ["fit", log, *SMALL, "--tol", "0.1", "--force", "-o", "model.npz"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(argv) == 0
    again, err = capsys.readouterr()
    assert again == out
    assert "sweep" in err


@pytest.mark.subprocess
@pytest.mark.parametrize("argv", [["--help"], ["fit", "--help"], ["rank", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(argv):
    code = "import atexit\natexit.register(lambda: print("
    code += "[m for m in ('numpy', 'numba', 'scipy', 'pyarrow') if m in sys.modules]))"
    done = finished(*argv, code=code, stdout=subprocess.PIPE)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "[]"


def test_text_goes_where_the_encoding_is_poor(model, monkeypatch):
    """Text for people gives in; tables are UTF-8 always."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["info", model]) == 0
    assert b"30 rows ? 8 columns" in written.getvalue()
    log = Path("log.csv").read_text(encoding="utf-8").replace("eu-1", "Zürich")
    Path("log.csv").write_text(log, encoding="utf-8")
    assert main(["predict", model, "log.csv", "--unknown", "nan"]) == 0
    assert "Zürich" in written.getvalue().decode()


@pytest.mark.subprocess
def test_a_reader_that_has_had_enough(model):
    """As in ``fastemf rank model | head -1``."""
    command, options = in_a_process(*RANK, model, stdout=subprocess.PIPE)
    with subprocess.Popen(command, **options) as process:
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(timeout=1500) == 0
    assert err == ""


def test_closed_streams(model, monkeypatch, refused):
    """As by ``<&-`` and ``>&-``, and as under a scheduler."""
    monkeypatch.setattr(sys, "stdin", None)
    assert refused("predict", model, "-") == "standard input is closed"
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["predict", model, "log.csv"]) == 0
    sys.stdout.close()


@pytest.mark.subprocess
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_standard_output_on_a_full_disk(model):
    with open("/dev/full", "w") as full:
        done = finished("info", model, stdout=full)
    assert done.returncode == 2
    assert done.stderr == "fastemf: No space left on device\n"


@pytest.mark.subprocess
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interrupted_in_the_middle_of_a_fit(log):
    Path("model.npz").write_bytes(b"precious")
    # The fit says when it is under way, and would go on for hours.
    code = """
import dataclasses, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
import fastemf.completion
begun = fastemf.completion.alternate
def alternate(engine, start, schedule, settings, *args):
    def tell(record):
        open("under way", "w").close()
    return begun(engine, start, schedule, dataclasses.replace(settings, callback=tell), *args)
fastemf.completion.alternate = alternate
"""
    argv = ["fit", log, "-k", "2", "--tol", "0", "--max-iter", "100000000", "-o", "model.npz"]
    command, options = in_a_process(*argv, "--force", code=code, stdout=subprocess.PIPE)
    with subprocess.Popen(command, **options) as process:
        deadline = time.monotonic() + 1500
        while not Path("under way").exists() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=1500)
    assert process.returncode == 130
    assert (out, err) == ("", "fastemf: interrupted\n")
    assert {path.name for path in Path().iterdir()} == {"log.csv", "model.npz", "under way"}
    assert Path("model.npz").read_bytes() == b"precious"


# --- shells --------------------------------------------------------------------------------

POSIX = pytest.mark.skipif(os.name != "posix", reason="a shell of POSIX")
PLAIN_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def in_a_shell(line, **environment):
    """A line of a shell in which $F is the command; returns code, output and errors, as bytes."""
    here = {"PYTHONPATH": str(Path(fastemf.__file__).parent.parent), **environment}
    here["F"] = f"{sys.executable} -m fastemf"
    done = subprocess.run(["bash", "-c", line], env=os.environ | here, capture_output=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.subprocess
@POSIX
@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_fit_without_streams(log, closed):
    code, _, _ = in_a_shell(f"$F fit {log} -k 2 --max-iter 6 -o model.npz {closed}")
    assert code == 0
    same_fit("model.npz", by_api())
    code, out, _ = in_a_shell(f"$F fit {log} -k -1 -o other.npz {closed}")
    assert (code, out) == (2, b"")
    assert not Path("other.npz").exists()


@pytest.mark.subprocess
@POSIX
def test_warnings_that_nobody_reads_stop_nothing(log):
    """As in ``fastemf fit ... 2>&1 >/dev/null | true``, and with errors on a full disk."""
    line = f"$F fit {log} -k 2 --max-iter 6 -o model.npz"
    command = f"trap '' PIPE; ({line} 2>&3 >/dev/null; echo $? >code) 3>&1 | true; cat code"
    for _ in range(100):  # until the shell's left side is done
        if in_a_shell(command)[1].strip():
            break
    assert Path("code").read_text() == "0\n"
    same_fit("model.npz", by_api())
    if os.path.exists("/dev/full"):
        assert in_a_shell(f"{line} --force 2>/dev/full >/dev/null")[0] == 0
        assert in_a_shell(f"{line} 2>/dev/full")[0] == 2  # it exists


@pytest.fixture
def dashed(quiet):
    """A model whose rows are called like options, numbers and names of elsewhere."""
    clients = ["-x", "-1", "--force", "eu-ü", "-", "-1.5", "-north", "-hx"] * 4
    services = np.repeat(["a", "b", "c", "d"], 8)
    table_files.write_table("d.csv", {"client": clients, "service": services, "ms": np.arange(32)})
    quiet("fit", "d.csv", "-k", "1", "--max-iter", "1", "-o", "d.npz")
    return "d.npz"


@pytest.mark.parametrize(
    ("argv", "rows"),
    [
        (["d.npz", "-n", "1", "--", "-x"], ["-x"]),
        (["-n", "1", "d.npz", "--", "-x"], ["-x"]),
        (["-n", "1", "--", "d.npz", "-x", "--force"], ["-x", "--force"]),
        (["d.npz", "-n", "1", "-1"], ["-1"]),
        (["d.npz", "-1", "-n", "1"], ["-1"]),
        (["d.npz", "-1", "-n", "1", "-1.5", "eu-ü"], ["-1", "-1.5", "eu-ü"]),
        (["d.npz", "-n", "1", "-"], ["-"]),
        (["d.npz", "-x", "-n", "1", "eu-ü"], ["-x", "eu-ü"]),
        (["d.npz", "eu-ü", "--level=0.5", "-x", "-1", "-n", "1"], ["eu-ü", "-x", "-1"]),
        (["-n", "1", "d.npz", "-1", "--force", "-x"], ["-1", "-x"]),
        (["d.npz", "-n", "1", "eu-ü", "--", "-x", "-1"], ["eu-ü", "-x", "-1"]),
        (["d.npz", "-x", "-north", "-hx", "-n", "1"], ["-x", "-north", "-hx"]),
        (["d.npz", "-n1", "-x", "-1", "-north"], ["-x", "-1", "-north"]),
        (["-n1", "d.npz", "--force", "-hx", "-x"], ["-hx", "-x"]),
    ],
)
def test_labels_like_options(argv, rows, dashed, quiet):
    assert parsed(quiet(*RANK, *argv))["client"] == rows


def test_what_begins_with_one_dash_is_a_row(dashed, refused):
    for argv in (["-y"], ["-n", "1", "eu-ü", "-y"], ["-y", "-n", "1"]):
        assert refused(*RANK, dashed, *argv) == "unknown labels: 1 in rows ('-y')"


@pytest.mark.parametrize("argv", [["eu-ü", "--jobs"], ["-n", "1", "eu-ü", "--y"]])
def test_options_that_are_none_stay_errors(argv, dashed, capsys):
    with pytest.raises(SystemExit) as left:
        main([*RANK, dashed, *argv])
    assert left.value.code == 2
    assert "unrecognized arguments: " in capsys.readouterr().err


@pytest.mark.subprocess
@POSIX
def test_names_in_a_locale_that_has_none_of_their_letters(dashed):
    Path("d.csv").rename("dü.csv")
    Path("c.csv").write_text(Path("dü.csv").read_text("utf-8").replace("client", "clï"), "utf-8")
    line = (
        "$F rank d.npz eu-ü -n 1 --order smallest;"
        "$F fit dü.csv -k 1 --max-iter 1 -o mü.npz; $F info mü.npz;"
        "$F fit c.csv --rows clï --cols service --values ms -k 1 --max-iter 1 -o mc.npz;"
        "$F predict mü.npz dü.csv -o pü.parquet; $F predict mü.npz pü.parquet"
    )
    code, out, err = in_a_shell(f"set -e; {line}", **PLAIN_LOCALE)
    assert code == 0, err
    assert out.decode().count('"eu-ü"') == 5
    same_fit("mü.npz", fastemf.load("d.npz"))
    assert fastemf.load("mc.npz").row_labels.name == "clï"
    code, out, err = in_a_shell("$F rank d.npz $'eu-\\xff' --order smallest", **PLAIN_LOCALE)
    assert (code, out) == (2, b"")
    assert err == b"fastemf: labels and names of columns must be UTF-8, got b'eu-\\xff'\n"


# --- the real thing ------------------------------------------------------------------------


@pytest.mark.compiled
def test_response_times_of_web_services(data_folder, quiet):
    """WS-DREAM's 5 % sample, from a log to predictions and rankings, by files alone."""
    with np.load(data_folder / "wsdream1_rt_union.npz") as file:
        sample = (file["src"] & 1) > 0
        user, service, seconds = (file[name][sample] for name in ("row", "col", "val"))
    log = {"user": np.char.add("u", user.astype(str)), "service": service, "s": seconds}
    table_files.write_table("log.csv", log)
    quiet("fit", "log.csv", "-k", "10", "--omega", "0.1", "-o", "model.npz")
    fit = fastemf.load("model.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same = fastemf.complete(
            "log.csv", 0.1, 10, rows="user", cols="service", values="s", intercepts=True
        )
    np.testing.assert_array_equal(fit.X, same.X)
    rows, cols = (labels.values for labels in (same.row_labels, same.col_labels))
    some = rows[[0, 7, len(rows) - 1]]
    pairs = {"user": np.repeat(some, cols.size), "service": np.tile(cols, some.size)}
    table_files.write_table("pairs.csv", pairs)
    quiet("predict", "model.npz", "pairs.csv", "-o", "out.csv")
    found = np.array(parsed(Path("out.csv").read_text())["prediction"], float)
    np.testing.assert_array_equal(found, same.predict(pairs["user"], pairs["service"]))
    quiet(*RANK, "model.npz", *some, "-n", "5", "--seen", "log.csv", "-o", "best.csv")
    best = same.rank(some, 5, order="smallest", seen=pa.table(log))
    ranked = parsed(Path("best.csv").read_text())
    assert list(map(int, ranked["service"])) == best.cols.ravel().tolist()
    assert list(map(float, ranked["prediction"])) == best.values.ravel().tolist()

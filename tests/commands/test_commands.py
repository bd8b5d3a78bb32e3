"""The commands: input, output and error messages as seen from a shell."""

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
from fastemf.support import atomic_file as whole_file

pytestmark = pytest.mark.filterwarnings("default")

NAMES = {"rows": "client", "cols": "service", "values": "ms"}
ALL_NAMED = ["--rows", "client", "--cols", "service", "--values", "ms"]
RANK = ["rank", "--order", "smallest"]
KINDS = ["model", "levels_model", pytest.param("quantiles_model", marks=pytest.mark.compiled)]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(fastemf.__file__).parents[1])}
SMALL = ["-k", "2", "--max-iter", "6"]
AT = ["--at", "0.5", "0.7"]
FITTED = {"k": 2, "max_iter": 6, "intercepts": True}


def log_columns(seed=0):
    """Every client and service, then random pairs; values with a long right tail."""
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
    """Run commands in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def log():
    table_files.write_table("log.csv", LOG)
    return "log.csv"


@pytest.fixture(scope="session")
def copied(tmp_path_factory):
    """A function that fits the log once in a session, and copies the model to this directory."""
    folder = tmp_path_factory.mktemp("models")
    table_files.write_table(folder / "log.csv", LOG)

    def copy(name, command, *options):
        path = folder / name
        if not path.exists():
            argv = [command, str(folder / "log.csv"), *SMALL, *options, "-o", str(path)]
            with warnings.catch_warnings(action="ignore"):
                assert main(argv) == 0
        return shutil.copy(path, name)

    return copy


@pytest.fixture
def model(log, copied):
    return copied("model.npz", "fit")


@pytest.fixture
def levels_model(log, copied):
    return copied("levels.npz", "levels", "--omegas", "0.1", "0.9")


@pytest.fixture
def quantiles_model(log, copied):
    return copied("q.npz", "quantiles", *AT)


@pytest.fixture(params=KINDS)
def path(request):
    """Each kind of model file: model.npz, levels.npz and q.npz."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def quiet(capsys):
    """Run a command that must succeed; return its output."""

    def run(*argv):
        capsys.readouterr()
        assert main(list(map(str, argv))) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys):
    """Run a command that must be refused without a trace; return its message."""

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


def by_api(R="log.csv", at=0.5, task=fastemf.complete, **options):
    names = {} if R.endswith((".mtx", ".npz")) else NAMES
    with warnings.catch_warnings(action="ignore"):
        return task(R, at, **names, **FITTED | options)


def floats(texts):
    return list(map(float, texts))


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


def same_ranking(found, best):
    """Compare a parsed table with a ranking in Python."""
    assert found["service"] == list(map(str, best.cols.ravel()))
    assert floats(found["prediction"]) == best.values.ravel().tolist()


def same_predictions(path, expected):
    found, rows = fastemf.load(path), expected.axes[0].ids()
    assert (found.row_labels, found.col_labels) == (expected.row_labels, expected.col_labels)
    assert getattr(found, "coverage", None) == getattr(expected, "coverage", None)  # of quantiles
    np.testing.assert_array_equal(found.predict_block(rows), expected.predict_block(rows))


def in_a_process(*argv, code=""):
    """Start a command in a new process, which first runs `code`."""
    text = f"import sys\n{code}\nfrom fastemf.cli import main\nsys.exit(main())"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", text, *argv], env=ENVIRONMENT, **pipes)


# --- fit -----------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", [".csv", ".tsv", ".parquet"])
def test_a_fit_of_a_table_equals_that_of_python(extension, quiet):
    table_files.write_table(f"log{extension}", LOG)
    out = quiet("fit", f"log{extension}", *SMALL, "--omega", "0.9", "-o", "model.npz")
    same_fit("model.npz", by_api(f"log{extension}", 0.9))
    assert "30 rows × 8 columns, rank 2, float64" in out
    assert "client: eu-0, eu-1, eu-2, …" in out
    assert "omega = 0.9: residuals above weigh 0.9, below 0.1" in out


@pytest.mark.parametrize(("path", "write"), [("R.mtx", scipy.io.mmwrite), ("R.npz", sp.save_npz)])
def test_a_fit_of_a_matrix_is_that_of_python(path, write, quiet):
    write(path, sparse_array((30, 8), 0.6, "csr", np.random.default_rng(0)))
    assert "by position, from 0" in quiet("fit", path, *SMALL, "-o", "model.npz")
    same_fit("model.npz", by_api(path))
    fit = fastemf.load("model.npz")
    assert quiet("evaluate", "model.npz", path) == f"{fit.evaluate(path)}\n"
    chosen = ["--ks", "1", "--regs", "auto", "--folds", "2", "--max-iter", "2"]
    assert quiet("select", path, *chosen).endswith("chosen\n")
    Path("pairs.csv").write_text("a,b\n3,1\n29,7\n")
    found = parsed(quiet("predict", "model.npz", "pairs.csv"))
    assert floats(found["prediction"]) == fit.predict([3, 29], [1, 7]).tolist()
    ranked = parsed(quiet(*RANK, "model.npz", "3", "-n", "2", "--seen", path))
    expected = fit.rank([3], 2, order="smallest", seen=path)
    assert list(map(int, ranked["col"])) == expected.cols[0].tolist()
    assert ranked["row"] == ["3", "3"]


def test_columns_are_selected_by_name(quiet):
    shuffled = {"note": ["x"] * 150, "ms": LOG["ms"], "service": LOG["service"]}
    table_files.write_table("shuffled.csv", shuffled | {"client": LOG["client"]})
    table_files.write_table("log.csv", LOG)
    quiet("fit", "shuffled.csv", *ALL_NAMED, *SMALL, "-o", "model.npz")
    same_fit("model.npz", by_api())


def test_standard_input(log, quiet, monkeypatch):
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


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        ("--no-intercepts", {"intercepts": False}),
        ("-k 0", {"k": 0}),
        ("--validation 0.3", {"validation": 0.3}),
        ("--weights calls", {"weights": "calls"}),
        ("--reg 0.5 --tol 0.5 --seed 3 --jobs 1", {"reg": 0.5, "tol": 0.5, "random_state": 3}),
    ],
)
def test_options_reach_the_fit(options, keywords, quiet):
    # Three columns besides the weights need no names.
    columns = LOG | ({"calls": np.arange(1, 151)} if "weights" in keywords else {})
    table_files.write_table("log.csv", columns)
    quiet("fit", "log.csv", *SMALL, *options.split(), "-o", "model.npz")
    same_fit("model.npz", by_api(**keywords))
    if "reg" not in keywords:
        quiet("levels", "log.csv", *SMALL, *options.split(), "-o", "levels.npz")
        k = fastemf.load("model.npz").k
        assert {fit.k for fit in fastemf.load("levels.npz").fits} == {k}


# --- predict -------------------------------------------------------------------------------


def test_predictions_are_bitwise_those_of_python(model, quiet):
    fit = fastemf.load(model)
    expected = fit.predict(LOG["client"], LOG["service"])
    found = parsed(quiet("predict", model, "log.csv"))
    assert found["client"] == LOG["client"].tolist()
    assert found["service"] == LOG["service"].tolist()
    assert floats(found["prediction"]) == expected.tolist()
    for bounds, clip in ((["60", "none"], (60, None)), (["50", "60"], (50, 60))):
        found = parsed(quiet("predict", model, "log.csv", "--clip", *bounds))
        clipped = fit.predict(LOG["client"], LOG["service"], clip=clip)
        assert floats(found["prediction"]) == clipped.tolist()
    assert quiet("predict", model, "log.csv", "-o", "-") == quiet("predict", model, "log.csv")
    for name, delimiter in (("out.csv", ","), ("out.tsv", "\t")):
        assert quiet("predict", model, "log.csv", "-o", name) == ""
        lines = csv.reader(Path(name).read_text().splitlines()[1:], delimiter=delimiter)
        assert [float(line[2]) for line in lines] == expected.tolist()
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


def test_columns_of_pairs(model, quiet, refused):
    expected = quiet("predict", model, "log.csv").splitlines()[1:]
    renamed = {"who": LOG["client"], "what": LOG["service"]}
    table_files.write_table("two.csv", renamed)  # the only two there are
    table_files.write_table("three.csv", {"ms": LOG["ms"], **renamed})
    assert quiet("predict", model, "two.csv").splitlines()[1:] == expected
    found = quiet("predict", model, "three.csv", "--rows", "who", "--cols", "what")
    assert found.splitlines() == ['"who","what","prediction"', *expected]
    message = refused("predict", model, "three.csv")
    assert message == "three.csv: there is no column 'client'; it has the columns ms, who, what"


def test_columns_of_the_user_keep_their_names(quiet):
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


def test_new_labels_are_predicted_and_ranked_as_in_python(path, quiet):
    Path("pairs.csv").write_text("client,service\neu-1,srv1\nmars,srv1\neu-1,srv99\nmars,srv99\n")
    rows, cols = ["eu-1", "mars", "eu-1", "mars"], ["srv1", "srv1", "srv99", "srv99"]
    model = fastemf.load(path)
    expected = model.predict(rows, cols, unknown="model").reshape(4, -1)
    found = parsed(quiet("predict", path, "pairs.csv", "--unknown", "model"))
    names = {"model.npz": ["prediction"], "levels.npz": ["omega=0.1", "omega=0.9"]}
    names = names.get(path, ["p50", "p70"])
    assert list(found) == ["client", "service", *names, "note"]
    assert found["note"] == ["", "new row", "new column", "new row and column"]
    assert [floats(found[name]) for name in names] == expected.T.tolist()
    assert np.isfinite(expected).all()
    at = {"levels.npz": {"omega": 0.9}, "q.npz": {"tau": 0.7}}.get(path, {})
    options = [word for name, value in at.items() for word in (f"--{name}", value)]
    best = model.rank(["mars", "eu-1"], 3, order="largest", unknown="model", **at)
    options += ["-n", "3", "--order", "largest", "--unknown"]
    listed = parsed(quiet("rank", path, "mars", "eu-1", *options, "model"))
    assert listed["client"] == ["mars"] * 3 + ["eu-1"] * 3
    same_ranking(listed, best)
    assert set(parsed(quiet("rank", path, "mars", "eu-1", *options, "nan"))["client"]) == {"eu-1"}


# --- labels --------------------------------------------------------------------------------


def fitted_with(clients, quiet, extension=".csv"):
    """Fit and return a model of a log with three other clients."""
    i = np.arange(24) % 3
    ms = np.random.default_rng(0).gamma(2, 20, 24)
    columns = {"client": pa.array(clients).take(i), "service": np.arange(24) // 3, "ms": ms}
    table_files.write_table(f"log{extension}", columns)
    quiet("fit", f"log{extension}", "-k", "1", "-o", "model.npz", "--force")
    return fastemf.load("model.npz")


def asked(clients):
    Path("pairs.csv").write_text("client,service\n" + "".join(f"{c},5\n" for c in clients))
    return "pairs.csv"


def test_integer_labels(quiet, refused):
    fit = fitted_with([7, -12, 30], quiet)
    assert fit.row_labels.kind == "int64"
    found = parsed(quiet("predict", "model.npz", asked(["-12", "30"])))
    assert found["client"] == ["-12", "30"]
    assert floats(found["prediction"]) == fit.predict([-12, 30], 5).tolist()
    # A single client that is not an integer turns the column into strings.
    pairs = asked(["30", "x", "007", "99", str(2**70)])
    found = parsed(quiet("predict", "model.npz", pairs, "--unknown", "nan"))["prediction"]
    assert found == [repr(float(fit.predict(30, 5))), *["nan"] * 4]
    message = refused("predict", "model.npz", pairs)
    assert message == f"unknown labels: 4 in rows ('x', '007', '99', '{2**70}')"
    assert parsed(quiet(*RANK, "model.npz", "-12", "-n", "1"))["client"] == ["-12"]
    assert refused(*RANK, "model.npz", "007") == "unknown labels: 1 in row ('007')"
    # A new row keeps its name.
    found = parsed(quiet(*RANK, "model.npz", "8", "x", "7", "-n", "1", "--unknown", "model"))
    assert found["client"] == ["8", "x", "7"]
    same_ranking(found, fit.rank([8, 9, 7], 1, order="smallest", unknown="model"))


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (pa.array([1, 2**64 - 1, 2], pa.uint64()), "uint64"),
        (pa.array([1, -(2**63), 2]), "int64"),
        (pa.array(["007", "12", "x"]), "str"),  # strings that look like integers
    ],
)
def test_labels_keep_their_type(labels, kind, quiet, refused):
    fit = fitted_with(labels, quiet, ".csv" if kind == "str" else ".parquet")
    assert fit.row_labels.kind == kind
    clients = labels.to_pylist()
    found = parsed(quiet("predict", "model.npz", asked(clients)))
    assert floats(found["prediction"]) == [float(fit.predict(c, 5)) for c in clients]
    ranked = parsed(quiet(*RANK, "model.npz", "-n", "1", "--", *clients))
    assert ranked["client"] == list(map(str, clients))
    assert_labels_are_no_header(clients, quiet, refused)


def assert_labels_are_no_header(clients, quiet, refused):
    """A first line with labels of the model is refused, and one with other labels is not."""
    for client in clients:
        Path("pairs.csv").write_text(f"{client},5\n{client},6\n")
        assert f"it would name '{client}' as" in refused("predict", "model.npz", "pairs.csv")
    for client in (3, 2**64, -(2**63) - 1, "9" * 5000):
        Path("pairs.csv").write_text(f"{client},5\n{clients[0]},6\n")
        assert len(parsed(quiet("predict", "model.npz", "pairs.csv"))["5"]) == 1


DAYS = [datetime.date(2024, 1, day) for day in (1, 2, 3)]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("ns")])
def test_dates(kind, quiet, refused):
    fit = fitted_with(pa.array(DAYS).cast(kind), quiet, ".parquet")
    assert fit.row_labels.kind.startswith("datetime64")
    expected = fit.predict(np.array(DAYS[1:], "datetime64[D]"), 5).tolist()
    from_file = parsed(quiet("predict", "model.npz", "log.parquet"))
    assert float(from_file["prediction"][16]) == expected[0]  # the second day, service 5
    pairs = asked(DAYS[1:])
    assert floats(parsed(quiet("predict", "model.npz", pairs))["prediction"]) == expected
    # Written dates can be read again.
    found = parsed(quiet("predict", "model.npz", asked(from_file["client"][1:3])))
    assert floats(found["prediction"]) == expected
    ranked = json.loads(quiet(*RANK, "model.npz", "2024-01-02", "-n", "1", "--json"))
    assert ranked[0]["client"].startswith("2024-01-02")
    bad = asked(["2024-01-02", "today", "2024", "2024-01-02T10:00", "2024-13-01"])
    found = parsed(quiet("predict", "model.npz", bad, "--unknown", "nan"))["prediction"]
    assert found == [repr(expected[0]), *["nan"] * 4]
    message = refused("predict", "model.npz", bad)
    assert "('today', '2024', '2024-01-02T10:00', '2024-13-01')" in message
    assert "1 in rows ('2024')" in refused("predict", "model.npz", asked(["2024"]))
    assert_labels_are_no_header(DAYS, quiet, refused)


def test_times_with_a_time_zone(quiet, refused):
    fit = fitted_with(pa.array(DAYS).cast(pa.timestamp("us", "Europe/Zurich")), quiet, ".parquet")
    assert fit.row_labels.kind == "datetime64[us, UTC]"
    times = [datetime.datetime.combine(day, datetime.time(), datetime.UTC) for day in DAYS]
    expected = fit.predict(times[1:], 5).tolist()
    for texts in (["2024-01-02T00:00Z", "2024-01-03 01:00:00+0100"], times[1:]):
        found = parsed(quiet("predict", "model.npz", asked(texts)))
        assert floats(found["prediction"]) == expected
    found = parsed(quiet("predict", "model.npz", "log.parquet"))
    again = parsed(quiet("predict", "model.npz", asked(found["client"][1:3])))
    assert floats(again["prediction"]) == expected
    message = refused("predict", "model.npz", asked(["2024-01-02", "2024-01-02T00:00", "today"]))
    assert "3 in rows ('2024-01-02', '2024-01-02T00:00', 'today')" in message


# --- rank ----------------------------------------------------------------------------------


def test_rankings_equal_those_of_python(model, quiet):
    fit = fastemf.load(model)
    found = parsed(quiet(*RANK, model, "eu-3", "eu-7", "-n", "2"))
    assert found["client"] == ["eu-3", "eu-3", "eu-7", "eu-7"]
    assert found["place"] == ["1", "2", "1", "2"]
    same_ranking(found, fit.rank(["eu-3", "eu-7"], 2, order="smallest"))
    every = parsed(quiet("rank", model, "--order", "largest", "-n", "100"))
    same_ranking(every, fit.rank(None, 8, order="largest"))
    assert every["client"] == np.repeat(fit.row_labels.values, 8).tolist()


def test_probabilities_of_larger_values_equal_those_of_python(
    quantiles_model, model, quiet, refused
):
    fit = fastemf.load(quantiles_model)
    found = parsed(quiet("predict", quantiles_model, "log.csv", "--above", "20", "25.5"))
    cells = fit.predict_distribution(found["client"], found["service"])
    assert list(found)[-2:] == ["above 20", "above 25.5"]
    assert floats(found["above 20"]) == cells.above(20).tolist()
    assert floats(found["above 25.5"]) == cells.above(25.5).tolist()
    ranked = parsed(quiet(*RANK, quantiles_model, "eu-3", "-n", "2", "--above", "20"))
    ranking = fit.rank("eu-3", 2, order="smallest", above=20)
    assert floats(ranked["above 20"]) == ranking.values.tolist()
    assert "without quantiles, got 20" in refused("predict", model, "log.csv", "--above", "20")
    with pytest.raises(SystemExit):
        main([*RANK, str(quantiles_model), "eu-3", "--above", "20", "--tau", "0.5"])


def test_ranking_excludes_seen_pairs(model, quiet):
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


@pytest.mark.compiled
def test_a_level_or_quantile_that_does_not_exist(levels_model, model, quantiles_model, refused):
    message = "levels.npz is a model of expectile levels (0.1, 0.9): select one with --omega"
    assert refused(*RANK, levels_model, "eu-3") == message
    assert "0.1, 0.9, got 0.3" in refused(*RANK, levels_model, "eu-3", "--omega", "0.3")
    message = "q.npz is a model of quantiles (0.5, 0.7): select one with --tau"
    assert refused(*RANK, quantiles_model, "eu-3") == message
    assert "0.5, 0.7, got 0.9" in refused(*RANK, quantiles_model, "eu-3", "--tau", "0.9")
    message = refused(*RANK, model, "eu-3", "--tau", "0.5")
    assert message == "--tau does not apply to model.npz, a model of expectile levels"


# --- evaluate -------------------------------------------------------------------------------


def test_an_evaluation_equals_that_of_python(path, quiet, refused):
    held_out = log_columns(seed=3)
    table_files.write_table("held.csv", held_out)
    model = fastemf.load(path)
    expected = model.evaluate("held.csv")
    assert quiet("evaluate", path, "held.csv") == f"{expected}\n"
    facts = json.loads(quiet("evaluate", path, "held.csv", "--json"))
    assert [list(score.values()) for score in facts["scores"]] == [[*s] for s in expected.scores]
    assert facts["verdict"] == expected.verdict().splitlines()
    assert (facts["observations"], facts["left_out"]) == (150, 0)
    deciles = [list(report.deciles) for report in expected.coverage]
    assert [report["deciles"] for report in facts.get("quantiles", [])] == deciles
    renamed = dict(zip(("who", "what", "long"), held_out.values(), strict=True))
    table_files.write_table("wide.csv", renamed | {"when": np.arange(150)})
    named = ["--rows", "who", "--cols", "what", "--values", "long"]
    assert quiet("evaluate", path, "wide.csv", *named) == f"{expected}\n"
    message = "with --rows, --cols, --values; it has the columns who, what, long, when"
    assert refused("evaluate", path, "wide.csv") == f"select columns of wide.csv {message}"
    new = np.where(np.arange(150) < 5, "mars", held_out["client"])
    table_files.write_table("new.csv", held_out | {"client": new, "n": 1 + np.arange(150) % 2})
    message = "new.csv: unknown labels: 1 in rows ('mars')"
    assert refused("evaluate", path, "new.csv") == message
    for unknown in ("nan", "model"):
        found = quiet("evaluate", path, "new.csv", "--unknown", unknown, "--weights", "n")
        assert found == f"{model.evaluate('new.csv', unknown=unknown, weights='n')}\n"


# --- censored values ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "side"), [("--censored-above", "right"), ("--censored-below", "left")]
)
def test_censored_values_are_fitted_as_in_python(log, option, side, quiet):
    limit = float(np.quantile(LOG["ms"], 0.9 if side == "right" else 0.1))
    is_censored = LOG["ms"] >= limit if side == "right" else LOG["ms"] <= limit
    table_files.write_table("marked.csv", LOG | {"late": np.where(is_censored, side, "")})
    quiet("fit", "log.csv", *SMALL, "--omega", "0.4", option, repr(limit), "-o", "limit.npz")
    marked = ["marked.csv", "--censored", "late", *SMALL]
    quiet("levels", *marked, "--omegas", "0.4", "0.6", "-o", "marks.npz")
    expected = by_api(at=0.4, censored=(side, limit))
    assert expected.imputation is not None
    same_fit("limit.npz", expected)
    levels = by_api(at=(0.4, 0.6), task=fastemf.complete_levels, censored=(side, limit))
    same_predictions("marks.npz", levels)


def test_an_update_uses_the_limit_of_the_model(log, day_two, quiet, capsys):
    limit = float(np.quantile(LOG["ms"], 0.8))
    quiet("fit", log, *SMALL, "--censored-above", repr(limit), "-o", "limits.npz")
    assert f"values at or above {limit:g} were imputed" in quiet("info", "limits.npz")
    for data, options in (("two.csv", []), (log, ["--all"])):
        update = ["update", "limits.npz", data, *options, "--force", "-o"]
        quiet(*update, "x.npz")
        quiet(*update, "y.npz", "--censored-above", repr(limit))
        same_fit("x.npz", fastemf.load("y.npz"))
    late = np.where(LOG["ms"] >= limit, "right", "")
    table_files.write_table("marked.csv", LOG | {"late": late})
    quiet("fit", "marked.csv", "--censored", "late", *SMALL, "-o", "marks.npz")
    assert main(["update", "marks.npz", log, "--all", "-o", "x.npz", "--force"]) == 0
    assert "all values of these data are taken as exact" in capsys.readouterr().err


def test_an_evaluation_of_censored_values_equals_that_of_python(log, quiet):
    limit = float(np.quantile(LOG["ms"], 0.8))
    above = ("--censored-above", repr(limit))
    quiet("fit", log, *SMALL, *above, "-o", "limits.npz")
    model = fastemf.load("limits.npz")
    assert quiet("evaluate", "limits.npz", log) == f"{model.evaluate('log.csv')}\n"
    lower = ("right", 0.9 * limit)
    found = quiet("evaluate", "limits.npz", log, "--censored-above", repr(0.9 * limit))
    assert found == f"{model.evaluate('log.csv', censored=lower)}\n"
    assert "censored values: imputed for loss" in found
    quiet("report", "limits.npz", log, "-o", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    assert page == fastemf.report(model, "log.csv")
    assert "censored values: imputed for loss" in page


# --- histograms ----------------------------------------------------------------


@pytest.fixture
def buckets():
    """Write cumulative histograms of the log, and return them as a table of intervals."""
    bounds = [10.0, 25.0, 50.0, 100.0, 250.0, np.inf]
    lines = [
        (client, service, "+Inf" if np.isinf(le) else le, int((own <= le).sum()))
        for client in np.unique(LOG["client"]) for service in np.unique(LOG["service"])
        if (own := LOG["ms"][(LOG["client"] == client) & (LOG["service"] == service)]).size
        for le in bounds
    ]  # fmt: skip
    with open("scrape.csv", "w", newline="") as file:
        csv.writer(file).writerows([("client", "service", "bound", "calls"), *lines])
    return fastemf.histograms(
        "scrape.csv", rows="client", cols="service", le="bound", counts="calls"
    )


HISTOGRAMS = ["--rows", "client", "--cols", "service", "--le", "bound", "--count", "calls"]


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")
def test_histograms_are_fitted_as_in_python(buckets, quiet):
    names = {"rows": "client", "cols": "service", "values": ("lower", "upper"), "weights": "count"}
    data = ["scrape.csv", *HISTOGRAMS, *SMALL]
    assert sum(buckets["count"].to_pylist()) == LOG["ms"].size
    quiet("fit", *data, "--omega", "0.4", "-o", "fit.npz")
    same_fit("fit.npz", fastemf.complete(buckets, 0.4, **names, **FITTED))
    quiet("levels", *data, "--omegas", "0.4", "0.6", "-o", "levels.npz")
    same_predictions("levels.npz", fastemf.complete_levels(buckets, (0.4, 0.6), **names, **FITTED))
    quiet("quantiles", *data, "--at", "0.5", "0.7", "-o", "quantiles.npz")
    same_predictions(
        "quantiles.npz", fastemf.complete_quantiles(buckets, (0.5, 0.7), **names, **FITTED)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (HISTOGRAMS[:-2], "histograms need --count: the names of their columns"),
        (HISTOGRAMS[4:], "histograms need --rows, --cols: the names of their columns"),
        ([*HISTOGRAMS, "--values", "calls"], "--values does not apply to histograms"),
        ([*HISTOGRAMS, "--weights", "calls"], "--weights does not apply to histograms"),
        ([*HISTOGRAMS, "--censored-above", "9"], "a censoring option does not apply"),
    ],
)
def test_wrong_options_of_histograms(buckets, options, message, capsys):
    assert main(["fit", "scrape.csv", *options, "-o", "x.npz"]) != 0
    assert message in capsys.readouterr().err


def test_a_damaged_histogram_names_file_and_bucket(buckets, capsys):
    text = Path("scrape.csv").read_text().splitlines()
    Path("scrape.csv").write_text("\n".join([text[0], *reversed(text[1:7])]))
    assert main(["fit", "scrape.csv", *HISTOGRAMS, "-o", "x.npz"]) != 0
    error = capsys.readouterr().err
    assert "scrape.csv: the bounds of a histogram must increase from line to line" in error


# --- formats of text tables ---------------------------------------------------


def in_local_format(path):
    """The lines of a table with semicolons and decimal commas."""
    head, *lines = Path(path).read_text().replace('"', "").splitlines()
    return [head.replace(",", ";"), *(";".join(x.split(",")).replace(".", ",") for x in lines)]


LOCAL = ["--sep", ";", "--decimal", ","]


def test_other_separators_and_decimal_points(model, quiet, refused, monkeypatch):
    Path("local.csv").write_text("\n".join(in_local_format("log.csv")) + "\n")
    message = refused("fit", "local.csv", *ALL_NAMED, *SMALL, "-o", "new.npz")
    assert "its header seems to be separated by ';'" in message
    assert "use --sep ';', and --decimal ," in message
    Path("local.csv.gz").write_bytes(gzip.compress(Path("local.csv").read_bytes()))
    for path in ("local.csv", "local.csv.gz"):
        quiet("fit", path, *LOCAL, *SMALL, "-o", "new.npz", "--force")
        same_fit("new.npz", fastemf.load(model))
    expected = quiet("predict", model, "log.csv")
    assert quiet("predict", model, "local.csv", *LOCAL) == expected
    assert quiet("evaluate", model, "local.csv", *LOCAL) == quiet("evaluate", model, "log.csv")
    seen = [*RANK, model, "eu-3", "--seen"]
    assert quiet(*seen, "local.csv", *LOCAL) == quiet(*seen, "log.csv")
    piped = io.TextIOWrapper(io.BytesIO(Path("local.csv").read_bytes()))
    monkeypatch.setattr(sys, "stdin", piped)
    assert quiet("predict", model, "-", *LOCAL) == expected


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
@pytest.mark.timeout(120)  # reading would wait for a writer
@pytest.mark.parametrize("packed", [False, True])
def test_a_named_pipe_is_refused(packed, refused):
    name = "pipe.csv.gz" if packed else "pipe.csv"
    os.mkfifo(name)
    message = f"{name}: expected a regular file; CSV from a pipe is read as -"
    for where in (["store", "build", *ALL_NAMED], ["fit", *SMALL]):
        for format in ([], ["--sep", ";"]):
            assert refused(*where, "-o", "none", name, *format) == message


LIKE_DATA = "the first line looks like data, not like column names: it would name"
NAME_COLUMNS = "add a line of column names, or name the columns with"


def test_a_first_line_of_data_is_refused(model, quiet, refused, monkeypatch):
    lines = Path("log.csv").read_text().replace('"', "").splitlines()[1:]
    bare = "\n".join(lines) + "\n"
    Path("bare.csv").write_text(bare)
    value = lines[0].split(",")[2]
    options = "--rows, --cols and --values"
    expected = f"bare.csv: {LIKE_DATA} {value!r} as the values; {NAME_COLUMNS} {options}"
    assert refused("quantiles", "bare.csv", *SMALL, "-o", "new.npz") == expected
    assert refused("evaluate", model, "bare.csv") == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bare.encode())))
    message = refused("fit", "-", *SMALL, "-o", "new.npz")
    assert message.startswith("standard input: the first line looks like data")
    for number in ("1,5", "-3", " 2.5e-3", "nan", "-inf"):
        Path("local.csv").write_text(f"a;b;{number}\nc;d;2\n")
        options = LOCAL if "," in number else ["--sep", ";"]
        message = refused("fit", "local.csv", *options, *SMALL, "-o", "new.npz")
        assert f"would name {number!r} as the values" in message
    # Numbers are accepted as names that are given, and as names in other formats.
    numbered = dict(zip(("1", "2", "3"), LOG.values(), strict=True))
    table_files.write_table("numbered.csv", numbered)
    names = ["--rows", "1", "--cols", "2", "--values", "3"]
    quiet("fit", "numbered.csv", *names, *SMALL, "-o", "numbered.npz")
    assert "looks like data" in refused("fit", "numbered.csv", *SMALL, "-o", "new.npz")
    parquet.write_table(pa.table(numbered), "numbered.parquet")
    quiet("fit", "numbered.parquet", *SMALL, "-o", "parquet.npz")
    for path in ("numbered.npz", "parquet.npz"):
        np.testing.assert_array_equal(fastemf.load(path).X, fastemf.load(model).X)


def test_a_first_line_with_a_pair_is_refused(model, quiet, refused):
    Path("pairs.csv").write_text("eu-3,srv1\neu-4,srv2\n")
    row = "'eu-3' as the rows, which is a row of the model"
    expected = f"pairs.csv: {LIKE_DATA} {row}; {NAME_COLUMNS} --rows and --cols"
    assert refused("predict", model, "pairs.csv") == expected
    assert refused(*RANK, model, "eu-3", "--seen", "pairs.csv") == expected
    found = parsed(quiet("predict", model, "pairs.csv", "--rows", "eu-3", "--cols", "srv1"))
    assert len(found["eu-3"]) == 1
    Path("pairs.csv").write_text("eu-3,server\neu-4,srv2\n")
    quiet("predict", model, "pairs.csv")
    scipy.io.mmwrite("R.mtx", sp.coo_array(np.random.default_rng(0).random((9, 7)) + 1))
    quiet("fit", "R.mtx", *SMALL, "-o", "matrix.npz")
    Path("pairs.csv").write_text("0,6\n8,1\n")
    assert "the first line looks like data" in refused("predict", "matrix.npz", "pairs.csv")
    Path("pairs.csv").write_text("0,7\n8,1\n")  # there is no column 7
    quiet("predict", "matrix.npz", "pairs.csv")
    Path("pairs.csv").write_text("row,col\n9,1\n8,1\n")  # nor a row 9
    assert "rows must be below 9, got 9" in refused("predict", "matrix.npz", "pairs.csv")
    found = parsed(quiet("predict", "matrix.npz", "pairs.csv", "--unknown", "model"))
    expected = fastemf.load("matrix.npz").predict([9, 8], 1, unknown="model")
    assert floats(found["prediction"]) == expected.tolist()
    found = parsed(quiet(*RANK, "matrix.npz", "9", "-n", "1", "--unknown", "model"))
    every = fastemf.load("matrix.npz").predict(9, range(7), unknown="model")
    assert floats(found["prediction"]) == [every.min()]


def test_stores_of_texts_in_other_formats(log, quiet, refused):
    local = in_local_format(log)
    Path("days").mkdir()
    Path("days/1.csv").write_text("\n".join(local[:100]) + "\n")
    Path("days/2.csv.gz").write_bytes(gzip.compress("\n".join([local[0], *local[100:]]).encode()))
    build = ["store", "build", *ALL_NAMED, "-o"]
    message = refused(*build, "none", "days/1.csv")
    assert message.startswith("days/1.csv has no column 'client'; it has 'client;service;ms'")
    assert "its header seems to be separated by ';'" in message
    message = refused(*build, "none", "days/1.csv", "--sep", ";")
    assert "column 'ms' must hold numbers, got" in message
    assert "at line 2 of days/1.csv" in message
    quiet(*build, "folder", "days", *LOCAL)
    quiet(*build, "grown", "days/1.csv", *LOCAL)
    quiet("store", "append", "grown", "days/2.csv.gz", *ALL_NAMED, *LOCAL)
    quiet("fit", log, *SMALL, "--reg", "1", "-o", "expected.npz")
    for store in ("folder", "grown"):
        quiet("fit", store, *SMALL, "--reg", "1", "-o", f"{store}.npz")
        same_fit(f"{store}.npz", fastemf.load("expected.npz"))
    parquet.write_table(pa.table(LOG), "log.parquet")
    for options, message in (
        ([log, "--decimal", ""], "--decimal must be one character, got ''"),
        (["log.parquet", "--sep", ";"], "--sep and --decimal apply to text files"),
        (["none.csv"], "none.csv: no such file"),
        (["none.csv", "--sep", ";"], "none.csv: no such file"),
        (["none"], "none: no such file"),
    ):
        assert message in refused(*build, "none", *options)


# --- update ---------------------------------------------------------------------------------


@pytest.fixture
def day_two():
    """Lines of new clients, some with a new service, and of an old client."""
    columns = {
        "client": ["us-1", "us-1", "us-2", "us-2", "eu-1", "us-3"],
        "service": ["srv1", "srv2", "srv1", "srv99", "srv1", "srv99"],
        "ms": [10.0, 20.0, 30.0, 40.0, 50.0, 60.0],
    }
    table_files.write_table("two.csv", columns)
    return columns


@pytest.mark.parametrize("name", ["model", "levels_model"])
def test_an_update_folds_new_rows_in_as_python_does(name, day_two, quiet, request):
    path = request.getfixturevalue(name)
    model = fastemf.load(path)
    out = quiet("update", path, "two.csv", "-o", "new.npz")
    assert "update    new rows folded in" in out
    assert "2 new rows, 3 observations" in out
    assert "left out: 1 of old rows and 2 of new columns; --all refits the model to all" in out
    expected = model.extend(pa.table(day_two)[:3], **NAMES)
    assert expected.row_labels.values[-2:].tolist() == ["us-1", "us-2"]
    same_predictions("new.npz", expected)
    facts = json.loads(quiet("update", path, "two.csv", "-o", "again.npz", "--json"))
    assert facts["left_out"] == {"of old rows": 1, "of new columns": 2}
    assert (facts["new_rows"], facts["observations"]) == (2, 3)


@pytest.mark.compiled
def test_an_update_of_quantiles_takes_all_lines(quantiles_model, day_two, quiet, refused):
    expected = fastemf.load("q.npz").update("two.csv")
    out = quiet("update", "q.npz", "two.csv", "-o", "new.npz")
    same_predictions("new.npz", expected)
    assert expected.row_labels.values[-3:].tolist() == ["us-1", "us-2", "us-3"]
    assert expected.col_labels.values[-1] == "srv99"
    assert "6 new observations\n" in out
    assert "factors of 1 known and 3 new rows and of 2 known and 1 new columns\n" in out
    assert "kept: ridges, linear starts, trees\n" in out
    assert "update    updated with new observations\n" in out
    facts = json.loads(quiet("update", "q.npz", "two.csv", "-o", "again.npz", "--json"))
    record = facts["updated"]
    assert (record["updated"], record["new"]) == ([1, 2], [3, 1])
    assert (record["trees_kept"], record["all_data"]) == (True, False)
    assert facts["update"] == "updated with new observations"
    assert json.loads(quiet("info", "again.npz", "--json"))["updated"] == record
    quiet("store", "build", "two.csv", "-o", "two.store", *ALL_NAMED)
    message = refused("update", "q.npz", "two.store", "-o", "x.npz")
    assert "two.store: new observations must not be in a store" in message


@pytest.fixture
def all_data(day_two):
    """A table with the log and the lines of day two."""
    together = {name: [*LOG[name].tolist(), *column] for name, column in day_two.items()}
    table_files.write_table("all.csv", together)
    return "all.csv"


def test_an_update_with_all_data_is_a_refit(path, all_data, quiet, refused):
    out = quiet("update", path, all_data, "--all", "-o", "new.npz")
    assert "update    refitted, starting from the old model" in out
    if path == "q.npz":
        init = fastemf.load(path)
        same_predictions("new.npz", quantiles_by_api(R=all_data, max_iter=100, init=init))
        assert "kept: ridges, linear starts, trees\n" in out
    if path == "model.npz":
        same_fit("new.npz", by_api(all_data, max_iter=100, init=fastemf.load(path)))
    quiet("store", "build", "log.csv", "-o", "log.store", *ALL_NAMED)
    quiet("store", "append", "log.store", "two.csv", *ALL_NAMED)
    message = refused("update", path, "log.store", "-o", "stored.npz")
    assert ("--all reads one" if path == "q.npz" else "use --all to refit") in message
    quiet("update", path, "log.store", "--all", "-o", "stored.npz")
    expected = fastemf.load("new.npz")
    assert expected.row_labels.values[-3:].tolist() == ["us-1", "us-2", "us-3"]
    same_predictions("stored.npz", expected)
    out = quiet("update", "new.npz", "log.csv", "--all", "-o", "old.npz")
    assert "3 rows and 1 columns of the old model are not in these data" in out


def test_impossible_updates_are_refused(model, quiet, refused):
    message = refused("update", model, "log.csv", "-o", "new.npz")
    assert message.startswith("log.csv has no observation of a new row in a column of the model")
    assert refused("update", model, "log.csv", "-o", model).endswith("--force replaces it")
    scipy.io.mmwrite("R.mtx", sp.random_array((30, 8), density=0.5))
    assert "R.mtx is a matrix" in refused("update", model, "R.mtx", "-o", "new.npz")
    quiet("fit", "R.mtx", *SMALL, "-o", "matrix.npz")
    message = refused("update", "matrix.npz", "log.csv", "-o", "new.npz")
    assert "recognised by their labels" in message


# --- quantiles ------------------------------------------------------------------------------


def quantiles_by_api(**options):
    return by_api(at=(0.5, 0.7), task=fastemf.complete_quantiles, **options)


@pytest.mark.compiled
def test_quantiles_equal_those_of_python(quantiles_model, quiet):
    expected = quantiles_by_api()
    same_predictions(quantiles_model, expected)
    text = quiet("quantiles", "log.csv", *AT, *SMALL, "-o", "again.npz")
    assert text.replace("again.npz", "q.npz") == quiet("info", quantiles_model)
    for report in expected.coverage:
        low, high = report.interval
        coverage = f"coverage {report.coverage:.4f} of {report.cells} cells"
        assert f"{coverage} (95 % CI {low:.4f} to {high:.4f})" in text
        constant = report.baselines["constant"]
        assert f"pinball loss {report.pinball:.4g}; baselines: constant {constant:.4g}" in text
    facts = json.loads(quiet("info", quantiles_model, "--json"))
    assert facts["fits"] == sum(map(len, expected.fits))
    for line, report in zip(facts["quantiles"], expected.coverage, strict=True):
        assert (line["tau"], line["coverage"]) == (report.tau, report.coverage)
        assert tuple(line["deciles"]) == report.deciles
    rows = {name: column[:9] for name, column in LOG.items()}
    expected.fold_in(pa.table(rows), **NAMES).save("folded.npz")
    assert "measured before the update" in quiet("info", "folded.npz")


@pytest.mark.compiled
def test_boosted_levels_equal_those_of_python(quiet):
    table_files.write_table("log.csv", LOG)
    text = quiet("levels", "log.csv", *SMALL, "--omegas", "0.2", "0.8", "--boost", "-o", "l.npz")
    expected = by_api(at=(0.2, 0.8), task=fastemf.complete_levels, boost=True)
    same_predictions("l.npz", expected)
    for report in expected.reports:
        assert all(line.strip() in text for line in str(report).splitlines())
    assert quiet("info", "l.npz") == text
    out = quiet("update", "l.npz", "log.csv", "--all", "-o", "again.npz")
    assert "update    refitted, starting from the old model\n" in out
    options = {"at": (0.2, 0.8), "task": fastemf.complete_levels, "boost": True}
    same_predictions("again.npz", by_api(max_iter=100, init=fastemf.load("l.npz"), **options))


@pytest.mark.compiled
def test_options_reach_the_quantiles(quiet):
    table_files.write_table("log.csv", LOG | {"calls": 1 + np.arange(150) % 3})
    given = ["--weights", "calls", "--reg", "0.5", "--tol", "0.01", "--seed", "3", "--jobs", "1"]
    quiet("quantiles", "log.csv", *AT, *SMALL, *given, "--no-intercepts", "-o", "q.npz")
    options = {"reg": 0.5, "tol": 0.01, "random_state": 3, "intercepts": False}
    same_predictions("q.npz", quantiles_by_api(weights="calls", **options))


@pytest.mark.compiled
def test_quantiles_of_a_store_and_from_checkpoints(quantiles_model, quiet, refused):
    quiet("store", "build", "log.csv", *ALL_NAMED, "-o", "store")
    fit = ["quantiles", "store", *AT, *SMALL, "--checkpoint", "state.npz"]
    quiet(*fit, "-o", "stored.npz")
    expected = fastemf.load(quantiles_model)
    same_predictions("stored.npz", expected)
    assert len(list(Path().glob("state-*.npz"))) == sum(map(len, expected.fits))
    assert "exists" in refused(*fit, "-o", "again.npz")
    quiet(*fit, "--resume", "-o", "again.npz")
    same_predictions("again.npz", expected)


@pytest.fixture
def side_model(copied):
    """A model with features, its data, and files of clients and of held-out lines."""
    clients = [f"eu-{n}" for n in range(40)]
    ages = np.random.default_rng(2).integers(0, 20, 40)
    table_files.write_table("clients.csv", {"client": clients, "age": ages})
    log = {name: np.tile(column, 4) for name, column in LOG.items()}
    log["hour"] = np.random.default_rng(3).integers(24, size=600)
    log["zone"] = np.where(log["hour"] > 12, "a", "b")
    log["ms"] *= 1 + 4 * (log["hour"] > 12)
    table_files.write_table("side.csv", log)
    some = {name: column[:30] for name, column in log.items()}
    some["client"] = np.where(np.arange(30) < 9, "eu-33", some["client"])
    table_files.write_table("new.csv", some)
    options = {"features": ["hour", "zone"], "row_features": "clients.csv"}
    return options, pa.table(some)


@pytest.mark.compiled
def test_side_features_equal_those_of_python(side_model, quiet, refused):
    options, some = side_model
    given = ["--features", "hour", "zone", "--row-features", "clients.csv"]
    text = quiet("quantiles", "side.csv", *given, *AT, *SMALL, "-o", "q.npz")
    expected = quantiles_by_api(R="side.csv", **options)
    same_predictions("q.npz", expected)
    assert "features  age of rows; hour, zone of observations" in text
    for report in expected.coverage:
        for group in report.cold:
            assert str(group) in text
    facts = json.loads(quiet("info", "q.npz", "--json"))
    assert facts["features"] == {"rows": ["age"], "columns": [], "observations": ["hour", "zone"]}
    model = fastemf.load("q.npz")

    predicted = model.predict(some, row_features="clients.csv")
    found = parsed(quiet("predict", "q.npz", "new.csv", "--row-features", "clients.csv"))
    np.testing.assert_array_equal([floats(found[name]) for name in ("p50", "p70")], predicted.T)
    assert "1 in rows ('eu-33')" in refused("predict", "q.npz", "new.csv")
    plain = model.predict(some, unknown="model")
    found = parsed(quiet("predict", "q.npz", "new.csv", "--unknown", "model"))
    np.testing.assert_array_equal(floats(found["p70"]), plain[:, 1])
    table_files.write_table("pairs.csv", {name: some[name] for name in ("client", "service")})
    found = parsed(quiet("predict", "q.npz", "pairs.csv", "--unknown", "model"))
    assert floats(found["p70"]) != plain[:, 1].tolist()

    ranked = ["eu-3", "eu-33", "-n", "4", "--tau", "0.7", "--features", "hour=20", "zone=a"]
    found = parsed(quiet(*RANK, "q.npz", *ranked, "--row-features", "clients.csv"))
    best = model.rank(
        ["eu-3", "eu-33"], 4, order="smallest", tau=0.7, features={"hour": 20, "zone": "a"},
        row_features="clients.csv",
    )  # fmt: skip
    same_ranking(found, best)
    wrong = {"hour": "must be NAME=VALUE, got hour", "hour=x": "'hour' must be a number, got x"}
    for text, message in (wrong | {"day=1": "(hour, zone), got 'day'"}).items():
        assert message in refused(*RANK, "q.npz", "eu-3", "--tau", "0.7", "--features", text)

    facts = json.loads(
        quiet("evaluate", "q.npz", "new.csv", "--row-features", "clients.csv", "--json")
    )
    evaluation = model.evaluate("new.csv", row_features="clients.csv")
    assert [one["pinball"] for one in facts["scores"]] == [one.pinball for one in evaluation.scores]

    quiet("update", "q.npz", "new.csv", "--row-features", "clients.csv", "-o", "more.npz")
    same_predictions("more.npz", model.update("new.csv", row_features="clients.csv"))
    message = refused("update", "q.npz", "side.csv", "--all", "-o", "again.npz")
    assert "--row-features must be given for a refit of q.npz, which was fitted with age" in message
    given = ["--all", "--row-features", "clients.csv", "-o", "again.npz"]
    quiet("update", "q.npz", "side.csv", *given)
    refit = quantiles_by_api(R="side.csv", max_iter=100, init=fastemf.load("q.npz"), **options)
    same_predictions("again.npz", refit)


@pytest.mark.compiled
def test_an_update_with_all_data_repeats_groups_weights_and_ridge(side_model, quiet, refused):
    log = parsed(Path("side.csv").read_text())
    log = {name: np.tile(log[name], 3) for name in ("client", "service", "ms", "zone")}
    log["ms"], log["calls"] = np.array(floats(log["ms"])), 1 + np.arange(1800) % 3
    table_files.write_table("side.csv", log)
    given = ["--features", "zone", "--weights", "calls", "--reg", "0.5"]
    fit = ["quantiles", "side.csv", *AT, *SMALL, *given]
    text = quiet(*fit, "--groups", "zone", "--calibrate", "-o", "q.npz")
    assert "groups    zone, calibrated" in text
    update = ["update", "q.npz", "side.csv", "--all", "-o", "again.npz"]
    assert "--weights must be given for a refit of q.npz, which was" in refused(*update)
    quiet(*update, "--weights", "calls")
    options = {"features": ["zone"], "weights": "calls", "groups": "zone", "calibrate": "groups"}
    init = fastemf.load("q.npz")
    expected = quantiles_by_api(R="side.csv", max_iter=100, init=init, **options)
    same_predictions("again.npz", expected)
    found = fastemf.load("again.npz")
    assert found.updated.trees_kept
    assert {fit.reg for level in found.fits for fit in level} == {0.5}
    assert found.groups == "zone"
    assert [group.name for group in found.coverage[0].groups] == ["a", "b"]
    assert np.any(found.combination.shifts.by_code)


@pytest.mark.compiled
def test_side_features_of_a_store(side_model, quiet):
    quiet("store", "build", "side.csv", *ALL_NAMED, "--columns", "zone", "hour", "-o", "store")
    given = ["--features", "hour", "zone", "--row-features", "clients.csv"]
    quiet("quantiles", "store", *given, *AT, *SMALL, "-o", "q.npz")
    same_predictions("q.npz", quantiles_by_api(R="side.csv", **side_model[0]))


@pytest.mark.compiled
def test_models_without_side_features_refuse_them(
    quantiles_model, model, side_model, quiet, refused
):
    message = "features must be None for a model without side features"
    assert message in refused(*RANK, model, "eu-3", "--features", "hour=1")
    given = ["--row-features", "clients.csv"]
    assert f"row_{message}" in refused("predict", model, "new.csv", *given)
    assert f"row_{message}" in refused("evaluate", model, "new.csv", *given)
    assert f"row_{message}" in refused("update", model, "new.csv", *given, "-o", "new.npz")
    assert "for models with side" in refused(
        "update", model, "log.csv", "--all", *given, "-o", "n.npz"
    )
    assert "those of the model (none), got 'age'" in refused("predict", "q.npz", "new.csv", *given)


# --- levels, select, info, demo ------------------------------------------------------------


def test_levels_equal_those_of_python(levels_model, quiet):
    expected = by_api(at=(0.1, 0.9), task=fastemf.complete_levels)
    for found, fit in zip(fastemf.load(levels_model).fits, expected.fits, strict=True):
        np.testing.assert_array_equal(found.X, fit.X)
    facts = json.loads(quiet("info", levels_model, "--json"))
    assert [level["omega"] for level in facts["levels"]] == [0.1, 0.9]


def test_select_equals_that_of_python(log, quiet):
    grid = ["--ks", "1", "2", "--regs", "auto", "0.1", "--folds", "2", "--max-iter", "2"]
    text = quiet("select", log, *grid, "-o", "best.npz", "--plot", "picture.png")
    with warnings.catch_warnings(action="ignore"):
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


def test_json_has_the_facts_of_the_text(log, quiet):
    fitted = quiet("fit", log, *SMALL, "-o", "model.npz")
    facts = json.loads(quiet("info", "model.npz", "--json"))
    assert quiet("info", "model.npz") == fitted == render(facts) + "\n"
    fit = fastemf.load("model.npz")
    assert (facts["model"], facts["shape"], facts["rank"]) == ("model.npz", [30, 8], 2)
    assert facts["rows"] == {"name": "client", "first": ["eu-0", "eu-1", "eu-2"]}
    (level,) = facts["levels"]
    assert (level["omega"], level["mu"], level["reg"]) == (fit.omega, fit.mu, fit.reg)
    assert (level["sweeps"], level["objective"]) == (fit.n_iter, fit.history[-1].objective)
    assert json.loads(quiet("fit", log, *SMALL, "-o", "model.npz", "--force", "--json")) == facts


@pytest.fixture
def long_log():
    """A log that is long enough for tuning."""
    rng = np.random.default_rng(0)
    i, j = (index.ravel() for index in np.indices((30, 16)))
    ms = rng.gamma(2, 20, 30)[i] * rng.gamma(2, 1, 16)[j] * rng.lognormal(0, 0.5, i.size)
    table_files.write_table("long.csv", {"client": i, "service": j, "ms": ms})
    return "long.csv"


def test_a_tuned_fit_equals_that_of_python_and_prints_its_verdict(long_log, quiet):
    out = quiet("fit", long_log, "-k", "2", "-o", "model.npz")
    fit = by_api(long_log, max_iter=100)
    same_fit("model.npz", fit)
    assert fastemf.load("model.npz").constant == fit.constant
    *verdict, losses = [line.strip() for line in out.splitlines()[-3:]]
    tuning = fit.tuning
    assert verdict == tuning.verdict().splitlines()
    listed = ", ".join(f"{one.name} {one.loss:.4g}" for one in tuning.baselines)
    assert losses == f"validation loss: fit {tuning.best.loss:.4g}; baselines: {listed}"
    # The candidates of the tuning
    facts = json.loads(quiet("info", "model.npz", "--json"))
    record = facts["levels"][0]["tuning"]
    assert record["verdict"] == verdict
    assert [step["loss"] for step in record["steps"]] == [step.loss for step in tuning.steps]
    assert [step["reg"] is None for step in record["steps"]] == [not s.rank for s in tuning.steps]
    assert record["chosen"] == tuning.chosen
    assert facts["levels"][0]["corrections"] == [list(table.over) for table in fit.corrections]
    assert record["baselines"] == {one.name: one.loss for one in tuning.baselines}
    assert (record["observations"], record["folds"]) == (tuning.cells, tuning.folds)
    text = quiet("info", "model.npz")
    assert text == render(facts, lists_steps=True) + "\n"
    table = text[text.index("family") :].splitlines()[1:]
    chosen = next(place for place, line in enumerate(table) if line.strip().startswith("* "))
    assert chosen == tuning.chosen
    assert f"{tuning.best.reg:.4g}" in table[chosen]
    assert f"row + column {tuning.baselines[2].loss:.4g}" in table[-1]


def test_the_ridge_is_a_rule_or_a_number(long_log, log, quiet):
    out = quiet("fit", long_log, "-k", "2", "--reg", "noise", "-o", "noise.npz")
    same_fit("noise.npz", by_api(long_log, reg="noise", max_iter=100))
    assert "validation loss" not in out
    facts = json.loads(quiet("info", "noise.npz", "--json"))
    assert facts["levels"][0]["tuning"] is None
    # The short log is not tuned, and the output gives the reason.
    out = quiet("fit", log, *SMALL, "--reg", "auto", "-o", "auto.npz")
    same_fit("auto.npz", by_api(reg="noise"))
    assert "not tuned" in out
    assert "too few observations to tune by (150, of at least 400)" in quiet("info", "auto.npz")


def test_example_data(quiet):
    assert quiet("demo", "--out", "log.csv") == ""
    found = parsed(Path("log.csv").read_text())
    expected = fastemf.datasets.make_latencies(random_state=0)
    assert found["client"] == expected.client.tolist()
    assert floats(found["ms"]) == expected.ms.tolist()
    assert parsed(quiet("demo", "--out", "-", "--seed", "1"))["client"] != found["client"]
    assert parsed(quiet("demo", "--out", "-"))["client"] == found["client"]


# --- errors are one line -----------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "missing"),
    [
        ("client,service,ms,note\na,b,1,x\n", [], "--rows, --cols, --values"),
        ("client,service,ms\na,b,1\n", ["--rows", "client"], "--cols, --values"),
        ("client;service;ms\na;b;1\n", [], "--rows, --cols, --values"),
    ],
)
def test_columns_must_be_selected(text, options, missing, refused):
    Path("bad.csv").write_text(text)
    present = text.splitlines()[0].replace(",", ", ")
    message = f"select columns of bad.csv with {missing}; it has the columns {present}"
    assert refused("fit", "bad.csv", *options, "-o", "model.npz") == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fit log.csv -k 0 --no-intercepts -o new.npz", "k must be at least 1 (0 fits"),
        ("fit nothing.csv -o new.npz", "nothing.csv: no such file"),
        ("fit bad.csv -o new.npz", "'ms' must hold numbers, got 'fast' at line 4 of bad.csv"),
        ("quantiles log.csv --at 0.5 0.99 -o new.npz", "at least 20 cells on the rarer side"),
        ("quantiles log.csv --resume -o new.npz", "--resume requires --checkpoint"),
        ("select log.csv --plot a.npz", "--plot must end in .png, .svg or .pdf, got a"),
        ("predict model.npz log.csv --clip 3 1", "clip must"),
        ("predict model.npz log.csv --sep ::", "--sep must be one character, got '::'"),
        ("predict model.npz model.npz --sep ;", "--sep and --decimal apply to text files"),
        ("predict model.npz none.csv --sep ;", "none.csv: no such file"),
        ("predict model.npz model.npz", "is a matrix; pairs must be a table with two columns"),
        ("predict model.npz log.csv -o out.txt", "out.txt: the name must end in .csv, .tsv,"),
        ("predict model.npz log.csv --json -o out.csv", "--out must end in .json with --json"),
        ("info text.npz", "text.npz is not a valid fastemf model: truncated, damaged, or another"),
        ("info .", ".: Is a directory"),
        ("demo --size 6 --rank 1 --density 1", "density must leave cells"),
    ],
)
def test_bad_options_and_files(line, message, model, refused):
    Path("bad.csv").write_text("client,service,ms\na,b,1\n\na,c,fast\n")
    Path("text.npz").write_text("not a model")
    assert message in refused(*line.split())


@pytest.mark.parametrize(
    "line",
    [
        "", "fit", "fit log.csv", "guess", "info m.npz other.npz", "rank m.npz --order best",
        "fit log.csv -o m.npz --omega high", "predict m.npz log.csv --clip 0 x",
        "rank m.npz eu-1", "rank m.npz eu-1 --what", "rank m.npz eu-1 --order smallest --jobs",
        "rank m.npz -n 1 eu-1 --order smallest --y",
        "fit log.csv --censored-above 3 --censored late -o x.npz",
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_parsed(line, capsys):
    with pytest.raises(SystemExit) as end:
        main(line.split())
    assert end.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search("^fastemf.*: error: ", err, re.MULTILINE)


# --- output files ----------------------------------------------------------------------


OUTPUTS = [
    (["fit", "log.csv", *SMALL], "out.npz"),
    (["levels", "log.csv", *SMALL], "out.npz"),
    (["select", "log.csv", "--ks=1", "--regs=auto", "--folds=2", "--max-iter=2"], "out.npz"),
    (["predict", "model.npz", "log.csv"], "out.csv"),
    (["predict", "model.npz", "log.csv"], "out.parquet"),
    (["report", "model.npz", "log.csv"], "out.html"),
    ([*RANK, "model.npz"], "out.csv"),
    ([*RANK, "model.npz", "--json"], "out.json"),
    (["demo"], "out.csv"),
]


@pytest.mark.parametrize(("argv", "name"), OUTPUTS)
def test_files_are_replaced_only_with_force(argv, name, model, quiet, refused):
    Path(name).write_text("precious")
    assert refused(*argv, "-o", name) == f"--out {name} exists; --force replaces it"
    quiet(*argv, "-o", name, "--force")
    assert not Path(name).read_bytes().startswith(b"precious")
    assert {path.name for path in Path().iterdir()} == {"log.csv", "model.npz", name}


@pytest.mark.parametrize(("argv", "name"), OUTPUTS)
def test_unusable_outputs_are_refused(argv, name, model, refused, monkeypatch):
    Path("folder").mkdir()
    assert refused(*argv, "-o", "folder", "--force") == "--out folder is a directory"
    message = refused(*argv, "-o", f"missing/{name}")
    assert message == f"--out missing/{name}: the directory does not exist"
    if hasattr(os, "mkfifo"):
        os.mkfifo(name)
        assert refused(*argv, "-o", name, "--force") == f"--out {name} is not a regular file"
        Path(name).unlink()
    if name.endswith(".npz"):
        assert "--out must be a file, got - for" in refused(*argv, "-o", "-")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert refused(*argv, "-o", name) == f"--out {name}: the directory is not writable"


@pytest.mark.parametrize(("argv", "name"), OUTPUTS)
@pytest.mark.parametrize("old", [None, "precious"])
def test_a_full_disk_leaves_the_old_file(argv, name, old, model, capsys, monkeypatch):
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


# --- standard streams ---------------------------------------------------------------------------


def test_warnings_are_lines(log, capsys):
    assert main(["fit", log, "-k", "2", "--max-iter", "2", "--tol", "0", "-o", "model.npz"]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r"fastemf: warning: .*max_iter.*\n", err)
    assert "did not converge in 2 sweeps" in out
    assert main(["fit", log, "-k", "2", "--max-iter", "200", "-o", "model.npz", "--force"]) == 0
    assert capsys.readouterr().err == ""


def test_progress_bars_are_for_terminals(log, capsys, monkeypatch):
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
    with in_a_process(*argv, code=code) as process:
        out, _ = process.communicate()
    assert process.returncode == 0
    assert out.startswith(("usage: fastemf", f"fastemf {fastemf.__version__}\n"))
    assert out.splitlines()[-1] == "[]"


def test_output_in_a_limited_encoding(model, monkeypatch):
    """Text replaces characters; tables are always UTF-8."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["info", model]) == 0
    assert b"30 rows ? 8 columns" in written.getvalue()
    log = Path("log.csv").read_text(encoding="utf-8").replace("eu-1", "Zürich")
    Path("log.csv").write_text(log, encoding="utf-8")
    assert main(["predict", model, "log.csv", "--unknown", "nan"]) == 0
    assert "Zürich" in written.getvalue().decode()


@pytest.mark.subprocess
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupted_fit(log):
    Path("model.npz").write_bytes(b"precious")
    # The fit signals that it is running, and would run for hours.
    code = """
import functools, signal
import fastemf
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
signal_start = lambda record: open("under way", "w").close()
fastemf.complete = functools.partial(fastemf.complete, callback=signal_start)
"""
    argv = ["fit", log, "-k", "2", "--tol", "0", "--max-iter", "100000000", "-o", "model.npz"]
    with in_a_process(*argv, "--force", code=code) as process:
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
    environment["F"] = f"{sys.executable} -m fastemf"
    done = subprocess.run(["bash", "-c", line], env=ENVIRONMENT | environment, capture_output=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.subprocess
@POSIX
def test_a_fit_without_streams(log):
    closed = "<&- >&- 2>&-"
    code, _, _ = in_a_shell(f"$F fit {log} -k 2 --max-iter 6 -o model.npz {closed}")
    assert code == 2  # the description of the model cannot be printed
    same_fit("model.npz", by_api())
    code, out, _ = in_a_shell(f"$F fit {log} -k -1 -o other.npz {closed}")
    assert (code, out) == (2, b"")
    assert not Path("other.npz").exists()


@pytest.fixture
def dashed(quiet):
    """A model whose row labels look like options, numbers and foreign names."""
    clients = ["-x", "-1", "--force", "eu-ü", "-", "-1.5", "-north", "-hx"] * 4
    services = np.repeat(["a", "b", "c", "d"], 8)
    table_files.write_table("d.csv", {"client": clients, "service": services, "ms": np.arange(32)})
    quiet("fit", "d.csv", "-k", "1", "--max-iter", "1", "-o", "d.npz")
    return "d.npz"


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("d.npz -n 1 -- -x", ["-x"]),
        ("-n 1 -- d.npz -x --force", ["-x", "--force"]),
        ("d.npz -1 -n 1 -1.5 eu-ü", ["-1", "-1.5", "eu-ü"]),
        ("d.npz -n 1 -", ["-"]),
        ("d.npz eu-ü --omega=0.5 -x -1 -n 1", ["eu-ü", "-x", "-1"]),
        ("d.npz -x -north -hx -n 1", ["-x", "-north", "-hx"]),
        ("d.npz -n1 -x -1 -north", ["-x", "-1", "-north"]),
        ("-n1 d.npz --force -hx -x", ["-hx", "-x"]),
    ],
)
def test_labels_like_options(line, rows, dashed, quiet):
    assert parsed(quiet(*RANK, *line.split()))["client"] == rows


@pytest.mark.slow
@pytest.mark.subprocess
@POSIX
def test_names_in_a_plain_locale(dashed):
    Path("d.csv").rename("dü.csv")
    Path("c.csv").write_text(Path("dü.csv").read_text("utf-8").replace("client", "clï"), "utf-8")
    line = (
        "$F rank d.npz eu-ü -n 1 --order smallest;"
        "$F fit dü.csv -k 1 --max-iter 1 -o mü.npz;"
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
    assert err == b"fastemf: labels and column names must be UTF-8, got b'eu-\\xff'\n"


@pytest.mark.compiled
def test_times_and_half_lives_equal_those_of_python(quiet, refused):
    hours = np.random.default_rng(0).uniform(0, 240, 150).round(3)
    start = np.datetime64("2024-03-01", "s")
    table_files.write_table("dated.csv", LOG | {"day": start + (3600 * hours).astype(int)})
    given = ["--time", "day", "--half-life", "2d", "--tol", "1"]
    text = quiet("fit", "dated.csv", *ALL_NAMED, *given, *SMALL, "--reg", "0.5", "-o", "fit.npz")
    settings = {**NAMES, **FITTED, "reg": 0.5, "tol": 1, "time": "day", "half_life": "2d"}
    expected = fastemf.complete("dated.csv", 0.5, **settings)
    same_predictions("fit.npz", expected)
    assert fastemf.load("fit.npz").drift == expected.drift
    for line in expected.drift.details():
        assert line in text
    facts = json.loads(quiet("info", "fit.npz", "--json"))["drift"]
    assert (facts["half_life"], facts["time"]) == (172_800, "day")
    assert facts["held_out"][0]["loss"] == expected.drift.held_out[0].loss
    quiet("update", "fit.npz", "dated.csv", "--all", "-o", "again.npz")
    assert fastemf.load("again.npz").drift.half_life == 172_800

    message = refused("fit", "dated.csv", *ALL_NAMED, "--half-life", "3", "-o", "none.npz")
    assert "--half-life must be given with time" in message
    message = refused("fit", "dated.csv", *ALL_NAMED, "--time", "service", "-o", "none.npz")
    assert "--time must be a further column" in message

    plain = ["quantiles", "dated.csv", "--time", "day", "--validation", "0.2", *AT, *SMALL]
    text = quiet(*plain, "-o", "q.npz")  # the three other columns need no names
    model = fastemf.load("q.npz")
    assert model.validation.observations + len(LOG["ms"]) * 0.5 < len(LOG["ms"])
    assert "of the validation cells" in text
    assert "of the latest" in text

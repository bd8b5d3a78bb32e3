"""Commands about a model: predictions, explanations, similar rows, and progress bars."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse as sp
from scenes import few_quantiles

import fastemf
from fastemf.cli import main
from fastemf.inputs import table_files
from fastemf.support import progress

pytestmark = [pytest.mark.compiled, pytest.mark.filterwarnings("default")]

NAMES = {"rows": "client", "cols": "service", "values": "ms"}
SETTINGS = {"reg": 0.1, "intercepts": True, "tol": 0.1, **NAMES}


def log_columns(seed=0, size=120):
    rng = np.random.default_rng(seed)
    i, j = rng.integers(12, size=size), rng.integers(8, size=size)
    ms = (1 + i) * (2 + j) * rng.lognormal(0, 0.5, size)
    return {"client": np.array([f"eu-{n}" for n in i]), "service": j, "ms": ms}


LOG = log_columns()
KINDS = {
    "model.npz": lambda: fastemf.complete(pa.table(LOG), 0.5, 2, **SETTINGS),
    "levels.npz": lambda: fastemf.complete_levels(pa.table(LOG), (0.1, 0.9), 2, **SETTINGS),
    "q.npz": lambda: few_quantiles(pa.table(LOG), **NAMES),
}
LEVEL = {"model.npz": [], "levels.npz": ["--omega", "0.9"], "q.npz": ["--tau", "0.7"]}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, make in KINDS.items():
        make().save(folder / name)
    table_files.write_table(folder / "log.csv", LOG)
    return folder


@pytest.fixture(autouse=True)
def here(folder, tmp_path, monkeypatch):
    """Run commands in a directory with the log and one model of each kind."""
    monkeypatch.chdir(tmp_path)
    for path in folder.iterdir():
        Path(path.name).write_bytes(path.read_bytes())


@pytest.fixture(params=KINDS)
def path(request):
    return request.param


@pytest.fixture
def run(capsys):
    """Run a command; return its output if it succeeds, and otherwise its message."""

    def run(*argv, code=0):
        capsys.readouterr()
        found = main(list(map(str, argv)))
        out, err = capsys.readouterr()
        assert found == code, err
        return out if code == 0 else err.removeprefix("fastemf: ").rstrip("\n")

    return run


def frame_of(text):
    header, *lines = csv.reader(io.StringIO(text))
    return pd.DataFrame(lines, columns=header)


def same_frame(text, frame):
    """Assert that CSV text is a data frame, number by number."""
    found = frame_of(text)
    assert list(found) == list(frame)
    for name, column in frame.items():
        if column.dtype.kind == "f":
            np.testing.assert_array_equal(found[name].astype(column.dtype), column)
        else:
            assert found[name].tolist() == list(map(str, column))


# --- predict -------------------------------------------------------------------------------------


def test_missing_pairs_are_predicted_as_in_python(path, run):
    model = fastemf.load(path)
    rows, cols = model.missing_pairs(pa.table(LOG))
    assert len(rows) > 5
    pairs = pd.DataFrame({"client": rows, "service": cols})
    same_frame(run("predict", path, "--missing", "log.csv"), model.predict(pairs, as_frame=True))
    renamed = dict(zip(("who", "what", "long"), LOG.values(), strict=True))
    table_files.write_table("other.csv", renamed)
    named = run("predict", path, "--missing", "other.csv", "--rows", "who", "--cols", "what")
    assert named == run("predict", path, "--missing", "log.csv")
    message = run("predict", path, "log.csv", "--missing", "log.csv", code=2)
    assert message == "give either pairs or --missing, got log.csv and log.csv"
    message = run("predict", path, "--missing", "log.csv", "--force", "-o", "log.csv", code=2)
    assert message == "--out log.csv is an input of this command, which it would replace"
    message = run("predict", path, code=2)
    assert message == "give either pairs or --sql, got neither"


def test_missing_pairs_of_a_matrix(run):
    R = sp.coo_array((np.random.default_rng(0).random((9, 7)) < 0.5).astype(float))
    scipy.io.mmwrite("R.mtx", R)
    fit = fastemf.complete(R, 0.5, 1, reg=0.1, intercepts=True)
    fit.save("matrix.npz")
    found = frame_of(run("predict", "matrix.npz", "--missing", "R.mtx"))
    rows, cols = fit.missing_pairs(R)
    assert list(found) == ["row", "col", "prediction"]
    assert found.row.astype(int).tolist() == rows.tolist()
    assert found.prediction.astype(float).tolist() == fit.predict(rows, cols).tolist()


def test_notes_mark_new_labels_and_predictions_beyond_the_limit(run, path):
    lines = ["eu-1,3", "new,3", "eu-1,99", "new,99"]
    Path("pairs.csv").write_text("\n".join(["client,service", *lines]) + "\n")
    model, pairs = fastemf.load(path), pd.read_csv("pairs.csv")
    for unknown in ("model", "nan"):
        found = run("predict", path, "pairs.csv", "--unknown", unknown)
        same_frame(found, model.predict(pairs, as_frame=True, unknown=unknown))
    limit = float(np.median(LOG["ms"]))
    cut = LOG | {"ms": np.minimum(LOG["ms"], limit)}
    fit = fastemf.complete(pa.table(cut), 0.9, 1, censored=("right", limit), **SETTINGS)
    fit.save("cut.npz")
    frame = fit.predict(pd.DataFrame(LOG)[["client", "service"]], as_frame=True)
    assert set(frame.note) == {"", "prediction beyond the limit"}
    same_frame(run("predict", "cut.npz", "log.csv"), frame)


def test_digits_round_predictions(path, run):
    model = fastemf.load(path)
    exact = model.predict(LOG["client"], LOG["service"]).reshape(120, -1)
    found = frame_of(run("predict", path, "log.csv", "--digits", 3))
    expected = [[float(f"{x:.3g}") for x in line] for line in exact]
    assert found.iloc[:, 2:].astype(float).to_numpy().tolist() == expected
    best = ["rank", path, "eu-3", "-n", 2, "--order", "smallest", *LEVEL[path]]
    whole, rounded = (json.loads(run(*best, "--json", *more)) for more in ((), ("--digits", 2)))
    for one, other in zip(whole, rounded, strict=True):
        assert other == one | {"prediction": float(f"{one['prediction']:.2g}")}
    run("predict", path, "log.csv", "--digits", 3, "-o", "out.parquet")
    stored = pd.read_parquet("out.parquet").iloc[:, 2:]
    np.testing.assert_array_equal(stored, expected)
    for command in ("predict", "rank", "similar"):
        argv = {"predict": ["log.csv"], "rank": ["--order", "smallest"], "similar": ["eu-1"]}
        message = run(command, path, *argv[command], "--digits", 0, code=2)
        assert message == "--digits must be at least 1, got 0"


# --- explain and similar -------------------------------------------------------------------------


def test_explanations_are_those_of_python(path, run):
    model, level = fastemf.load(path), LEVEL[path]
    if path == "q.npz":
        found = model.explain("eu-3", 4, tau=0.7)
    else:
        found = (model.level(0.9) if level else model).explain("eu-3", 4)
    assert run("explain", path, "eu-3", 4, *level) == f"{found}\n"
    facts = json.loads(run("explain", path, "eu-3", 4, *level, "--json"))
    assert facts == {
        "level": found.level, "value": found.value, "parts": found.parts, "notes": []
    }  # fmt: skip
    assert "unknown labels: 1 in rows ('new')" in run("explain", path, "new", 4, *level, code=2)
    assert "unknown labels: 1 in column" in run("explain", path, "eu-3", "x", *level, code=2)
    new = ["explain", path, "new", 4, *level, "--unknown", "model"]
    if path == "q.npz":
        assert run(*new) == f"{model.explain('new', 4, tau=0.7, unknown='model')}\n"
    else:
        assert f"do not apply to {path}, a model without boosted trees" in run(*new, code=2)
    if level:
        assert "select one with --" in run("explain", path, "eu-3", 4, code=2)
    else:
        message = run("explain", path, "eu-3", 4, "--omega", 0.9, code=2)
        assert message == "--omega must be one of the levels fitted, 0.5, got 0.9"


def test_explanations_with_side_features(run):
    log = pa.table(LOG | {"hour": np.arange(120) % 24})
    few_quantiles(log, features=["hour"], **NAMES).save("side.npz")
    model = fastemf.load("side.npz")
    found = model.explain("eu-3", 4, tau=0.7, features={"hour": 20})
    argv = ["explain", "side.npz", "eu-3", 4, "--tau", 0.7, "--features", "hour=20"]
    assert run(*argv) == f"{found}\n"


def test_similar_rows_and_columns_are_those_of_python(path, run):
    model = fastemf.load(path)
    same_frame(run("similar", path, "eu-3", "-n", 4), model.similar_rows("eu-3", 4).to_frame())
    nearest = model.similar_cols(2, 10)
    same_frame(run("similar", path, 2, "--columns"), nearest.to_frame())
    lines = json.loads(run("similar", path, 2, "--columns", "--json"))
    assert [line["distance"] for line in lines] == nearest.to_frame().distance.tolist()
    message = "unknown labels: 1 in column ('eu-3')"
    assert run("similar", path, "eu-3", "--columns", code=2) == message


def test_similar_rows_of_useless_factors_come_with_a_warning(capsys):
    fit = fastemf.complete(pa.table(LOG), 0.5, 0, **SETTINGS)
    fit.save("flat.npz")
    assert main(["similar", "flat.npz", "eu-3"]) == 0
    assert "warning: the factors of the model explain nothing" in capsys.readouterr().err


# --- options and columns -------------------------------------------------------------------------


def test_small_tables_need_no_rank(run):
    small = {"client": ["a", "a", "b", "b"], "service": ["x", "y", "x", "y"], "ms": [1.0, 2, 3, 5]}
    table_files.write_table("small.csv", small)
    assert "2 rows × 2 columns, rank 2" in run("fit", "small.csv", "-o", "small.npz")
    fit = fastemf.complete("small.csv", 0.5, "auto", intercepts=True, **NAMES)
    np.testing.assert_array_equal(fastemf.load("small.npz").X, fit.X)
    message = run("fit", "small.csv", "-k", 5, "-o", "new.npz", code=2)
    assert message.startswith("-k must be at most min(rows, columns) = 2")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("quantiles log.csv --at 0.5 0.999", "--at must have at least 20 cells"),
        ("quantiles log.csv --at 95", "each of --at must be"),
        ("levels log.csv --omegas 0.5", "--omegas must be two or more"),
        ("fit log.csv --omega 2", "--omega must lie"),
        ("fit log.csv --max-iter 0", "--max-iter must be at least 1"),
        ("fit log.csv --jobs 0", "--jobs must not be 0"),
        ("fit log.csv --seed -1", "--seed must be"),
    ],
)
def test_messages_name_options(line, message, run):
    assert run(*line.split(), "-o", "new.npz", code=2).startswith(message)


def test_columns_of_held_out_data_are_found_by_name(path, run):
    model = fastemf.load(path)
    shuffled = pd.DataFrame(log_columns(1))[["ms", "service", "client"]].assign(when=1)
    shuffled.to_csv("held.csv", index=False)
    assert run("evaluate", path, "held.csv") == f"{model.evaluate('held.csv')}\n"
    renamed = shuffled.rename(columns={"ms": "latency"}).drop(columns="when")
    renamed.to_csv("renamed.csv", index=False)
    message = (
        "renamed.csv: there is no column 'ms', as in the fit; select one with --values; it has the "
        "columns latency, service, client"
    )
    assert run("evaluate", path, "renamed.csv", code=2) == message
    found = run("evaluate", path, "renamed.csv", "--values", "latency")
    assert found == f"{model.evaluate('held.csv')}\n"


# --- progress ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        ("predict q.npz log.csv", "cell"),
        ("predict q.npz log.csv", "line"),
        ("rank q.npz --tau 0.7 --order smallest", "cell"),
        ("evaluate q.npz log.csv", "cell"),
        ("evaluate model.npz log.csv", "cell"),
        ("report q.npz log.csv --force -o report.html", "cell"),
        ("fit log.csv --force -o new.npz", "tuning"),
        ("quantiles log.csv --at 0.5 --reg 0.1 --force -o new.npz", "boosting"),
        ("store verify store", "file"),
    ],
)
def test_commands_that_take_long_show_progress(line, unit, capsys, monkeypatch):
    fastemf.store.build("log.csv", "store", **NAMES)
    table_files.write_table("log.csv", log_columns(size=600))  # enough cells to tune
    monkeypatch.setattr(progress, "DELAY", 0)
    assert main(line.split()) == 0
    expected, err = capsys.readouterr()
    assert unit not in err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(line.split()) == 0
    out, err = capsys.readouterr()
    assert unit in err
    assert out == expected

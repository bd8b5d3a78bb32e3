"""The experiments: their files, their results, and errors before the first fit."""

import csv
import re
import sys
from functools import partial

import numpy as np
import pytest

from fastemf.cli import main
from fastemf.datasets import make_skewed
from fastemf.experiments import sensing, settings
from fastemf.experiments.report import Report
from fastemf.experiments.sensing import convergence_rate, phase_diagram
from fastemf.experiments.settings import LEVELS

pytest.importorskip("matplotlib")

unpublished = pytest.mark.filterwarnings("ignore:.*published")


@pytest.fixture(scope="session")
def rt_file(tmp_path_factory):
    """A complete small matrix in the published format."""
    path = tmp_path_factory.mktemp("wsdream") / "rtMatrix.txt"
    np.savetxt(path, make_skewed(30, 24, rank=2, random_state=0).noisy, delimiter="\t")
    return path


@pytest.fixture(scope="session")
def latencies(tmp_path_factory):
    """A small symmetric matrix with a zero diagonal."""
    path = tmp_path_factory.mktemp("netlatency") / "PlanetLabData_1"
    times = 60 * make_skewed(24, 24, rank=2, random_state=0).noisy
    np.savetxt(path, np.triu(times, 1) + np.triu(times, 1).T)
    return path


def numbers(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def is_picture(path):
    return path.read_bytes().startswith(b"\x89PNG")


QUICK = ["--repeats", "1", "--rank", "1", "--sweeps", "2"]


def reproduce(name, out, *arguments):
    """Run an experiment; return its exit status."""
    return main(["reproduce", name, "--out", str(out), *map(str, arguments)])


# --- files ------------------------------------------------------------------------


@pytest.mark.thorough
@unpublished
def test_measured_data(rt_file, tmp_path, capsys):
    assert reproduce("wsdream", tmp_path, "--data", rt_file, *QUICK) == 0
    rows = numbers(tmp_path / "wsdream.csv")
    bins = ["all", "0 to 0.3 s", "0.3 to 3.1 s", "3.1 to 20 s"]
    assert [(float(row["omega"]), row["bin"]) for row in rows] == [
        (omega, label) for _ in range(2) for omega in LEVELS for label in bins
    ]
    for row in rows[:: len(bins)]:
        assert int(row["cells"]) + int(row["excluded"]) == 720 - round(float(row["rate"]) * 720)
        assert row["sweeps"] == "2"
    pictures = ["histograms", "cdf", "boxes_5", "boxes_10", "levels"]
    assert all(is_picture(tmp_path / f"wsdream_{name}.png") for name in pictures)
    page = (tmp_path / "wsdream.html").read_text()
    assert page.count("<img") == len(pictures)
    assert "residuals of the SVD of rank 1" in page  # the matrix is complete
    out = capsys.readouterr().out
    assert "10% observed: means over 1 draw" in out
    assert str(tmp_path / "wsdream.html") in out


@pytest.mark.thorough
@unpublished
def test_latencies(latencies, tmp_path):
    options = [*QUICK, "--bins", 0, 100, 2000]
    assert reproduce("netlatency", tmp_path, "--data", latencies, *options) == 0
    rows = numbers(tmp_path / "netlatency.csv")
    assert {row["bin"] for row in rows} == {"all", "0 to 100 ms", "100 to 2000 ms"}
    whole = [row for row in rows if row["bin"] == "all"]
    trained = {float(row["rate"]): 24 * 23 - int(row["cells"]) for row in whole}
    assert trained == {0.05: 2 * round(0.05 * 276), 0.1: 2 * round(0.1 * 276)}
    assert "residuals of the ω = 0.5 fit" in (tmp_path / "netlatency.html").read_text()


@pytest.mark.thorough
def test_synthetic(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert reproduce("synthetic", tmp_path, "--size", 30, "--literal", *QUICK) == 0
    rows = numbers(tmp_path / "synthetic.csv")
    assert [float(row["omega"]) for row in rows] == [*LEVELS, *LEVELS]
    assert {row["reg"] for row in rows} == {"0"}
    assert all(is_picture(tmp_path / f"synthetic_{name}.png") for name in ("loss", "cdf"))
    assert "1.435, 3.000, 5.496" in (tmp_path / "synthetic.html").read_text()
    assert "fit" in capsys.readouterr().err  # the bar


def test_sensing(tmp_path, capsys, monkeypatch):
    for measure in (phase_diagram, convergence_rate):
        small = partial(measure, ratios=(3.0,), omegas=(0.3, 0.5), max_iter=12)
        monkeypatch.setattr(sensing, measure.__name__, small)
    assert reproduce("sensing", tmp_path, "--size", 4, "--rank", 1, "--repeats", 1) == 0
    rows = numbers(tmp_path / "sensing.csv")
    assert [(row["measure"], float(row["omega"])) for row in rows] == [
        (measure, omega) for measure in ("share_recovered", "error_factor") for omega in (0.3, 0.5)
    ]
    assert "ω = 0.3" in capsys.readouterr().out
    for name in ("phase_diagram", "convergence_rate"):
        assert is_picture(tmp_path / f"sensing_{name}.png")


def test_the_report_escapes_text(tmp_path):
    report = Report("x", "<b>", ["a & b"])
    report.table("<i>", [{"<th>": "<td>", "n": 0.12345}])
    page = report.write(tmp_path)[0].read_text()
    assert not re.search(r"<(b|i)>|<td><td>", page)
    assert "a &amp; b" in page
    assert "0.123<" in page


# --- settings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--repeats", "0"], "repeats must be at least 1, got 0"),
        (["--rank", "25"], "rank must be at most min(rows, columns) = 24"),
        (["--reg", "much"], 'reg must be "auto", "noise" or a number >= 0, got \'much\''),
        (["--literal", "--intercepts"], "literal=True requires"),
        (["--literal", "--reg", "noise"], "literal=True requires"),
        (["--bins", "3", "1"], "bins must be at least two finite, increasing edges"),
        (["--bins", "0", "20", "40"], "bins must contain data, got none from 20 to 40 s"),
        (["--out", "{file}/folder"], "out must be a writable directory, got"),
        (["--data", "{file}x"], "no such file or directory; expected rtMatrix.txt"),
    ],
)
@unpublished
def test_clear_errors_before_any_fit(arguments, message, rt_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(settings, "complete", lambda *a, **k: pytest.fail("a fit was made"))
    arguments = [argument.format(file=rt_file) for argument in arguments]
    assert reproduce("wsdream", tmp_path, "--data", rt_file, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())

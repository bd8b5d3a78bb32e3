"""The experiments run, write what they show, and refuse what cannot work before any fit."""

from __future__ import annotations

import csv
import re
import subprocess
import sys

import numpy as np
import pytest

from fastemf.cli import main
from fastemf.datasets import make_skewed
from fastemf.experiments import convergence_rate, phase_diagram, settings
from fastemf.experiments.report import Report
from fastemf.experiments.settings import LEVELS, ExperimentSettings

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


# --- what is written ------------------------------------------------------------------------


@pytest.mark.thorough
@unpublished
def test_measured_data(rt_file, tmp_path, capsys):
    assert (
        main(["reproduce", "wsdream", "--data", str(rt_file), "--out", str(tmp_path), *QUICK]) == 0
    )
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
    command = ["reproduce", "netlatency", "--data", str(latencies), "--out", str(tmp_path)]
    assert main([*command, *QUICK, "--bins", "0", "100", "2000"]) == 0
    rows = numbers(tmp_path / "netlatency.csv")
    assert {row["bin"] for row in rows} == {"all", "0 to 100 ms", "100 to 2000 ms"}
    trained = {
        float(row["rate"]): 24 * 23 - int(row["cells"]) for row in rows if row["bin"] == "all"
    }
    assert trained == {0.05: 2 * round(0.05 * 276), 0.1: 2 * round(0.1 * 276)}
    assert "residuals of the ω = 0.5 fit" in (tmp_path / "netlatency.html").read_text()


@pytest.mark.thorough
def test_synthetic(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    command = ["reproduce", "synthetic", "--out", str(tmp_path), "--size", "30", "--literal"]
    assert main([*command, *QUICK]) == 0
    rows = numbers(tmp_path / "synthetic.csv")
    assert [float(row["omega"]) for row in rows] == [*LEVELS, *LEVELS]
    assert {row["reg"] for row in rows} == {"0"}
    assert all(is_picture(tmp_path / f"synthetic_{name}.png") for name in ("loss", "cdf"))
    assert "1.435, 3.000, 5.496" in (tmp_path / "synthetic.html").read_text()
    assert "fit" in capsys.readouterr().err  # the bar


def test_sensing(tmp_path, capsys, monkeypatch):
    for module in (phase_diagram, convergence_rate):
        small = {"ratios": (3.0,), "omegas": (0.3, 0.5), "max_iter": 12}
        original = module.run
        monkeypatch.setattr(
            module, "run", lambda *a, run=original, small=small, **k: run(*a, **k, **small)
        )
    command = ["reproduce", "sensing", "--out", str(tmp_path)]
    assert main([*command, "--size", "4", "--rank", "1", "--repeats", "1"]) == 0
    rows = numbers(tmp_path / "sensing.csv")
    assert [(row["measure"], float(row["omega"])) for row in rows] == [
        (measure, omega) for measure in ("share_recovered", "error_factor") for omega in (0.3, 0.5)
    ]
    assert "ω = 0.3" in capsys.readouterr().out
    for name in ("phase_diagram", "convergence_rate"):
        assert is_picture(tmp_path / f"sensing_{name}.png")


def test_the_report_escapes_what_it_is_given(tmp_path):
    report = Report("x", "<b>", ["a & b"])
    report.table("<i>", [{"<th>": "<td>", "n": 0.12345}])
    page = report.write(tmp_path)[0].read_text()
    assert not re.search(r"<(b|i)>|<td><td>", page)
    assert "a &amp; b" in page
    assert "0.123<" in page


# --- settings -------------------------------------------------------------------------------


def test_literal_is_algorithm_one():
    assert ExperimentSettings(literal=True).options == {
        "reg": 0.0, "reg_scaling": "plain", "momentum": False, "anneal": False, "tol": 0.0,
        "max_iter": 200,
    }  # fmt: skip
    assert ExperimentSettings(literal=True, reg=1, sweeps=40).options["reg"] == 1
    assert ExperimentSettings(intercepts=True).options == {"reg": "noise", "intercepts": True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--repeats", "0"], "repeats must be at least 1, got 0"),
        (["--rank", "0"], "rank must be at least 1, got 0"),
        (["--rank", "25"], "rank must be at most min(rows, columns) = 24"),
        (["--sweeps", "0"], "sweeps must be at least 1, got 0"),
        (["--reg", "much"], 'reg must be "auto", "noise" or a number >= 0, got \'much\''),
        (["--reg", "-1"], "reg must be finite and not negative, got -1.0"),
        (["--literal", "--intercepts"], "literal is the paper's algorithm"),
        (["--literal", "--reg", "auto"], "literal is the paper's algorithm"),
        (["--literal", "--reg", "noise"], "literal is the paper's algorithm"),
        (["--bins", "3", "1"], "bins must be at least two finite, increasing edges"),
        (["--bins", "0", "20", "40"], "bins must hold data, got none from 20 to 40 s"),
        (["--out", "{file}/folder"], "out must be a folder that can be written to, got"),
        (["--data", "{file}x"], "no such file or folder; expected rtMatrix.txt"),
    ],
)
@unpublished
def test_clear_errors_before_any_fit(arguments, message, rt_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(settings, "complete", lambda *a, **k: pytest.fail("a fit was made"))
    arguments = [argument.format(file=rt_file) for argument in arguments]
    command = ["reproduce", "wsdream", "--data", str(rt_file), "--out", str(tmp_path)]
    assert main([*command, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_sensing_refuses_too(tmp_path, capsys):
    for arguments in (["--repeats", "0"], ["--rank", "21"], ["--size", "0"]):
        assert main(["reproduce", "sensing", "--out", str(tmp_path), *arguments]) == 2
        assert f"{arguments[0][2:]} must be at" in capsys.readouterr().err


@pytest.mark.filterwarnings("default:.*published")
def test_too_little_data(tmp_path, capsys):
    path = tmp_path / "rtMatrix.txt"
    matrix = np.full((20, 20), -1.0)
    matrix[:2, :10] = 0.2 + np.arange(20).reshape(2, 10)
    np.savetxt(path, matrix)
    assert main(["reproduce", "wsdream", "--data", str(path), "--rank", "1"]) == 2
    err = capsys.readouterr().err
    assert "which is not the published one" in err
    assert "data must hold more than 5% of the matrix's cells (20)" in err


# --- what comes out -------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.compiled
@unpublished
def test_low_levels_win_in_low_bins_and_high_levels_in_high_ones(tmp_path):
    noisy = make_skewed(300, 200, rank=3, random_state=1).noisy
    np.savetxt(tmp_path / "rtMatrix.txt", noisy, delimiter="\t")
    low, high = np.quantile(noisy, [0.3, 0.7])
    edges = [f"{edge:.4f}" for edge in (0, low, high, noisy.max() + 1)]
    command = ["reproduce", "wsdream", "--data", str(tmp_path), "--out", str(tmp_path)]
    assert main([*command, "--repeats", "2", "--rank", "3", "--bins", *edges]) == 0
    rows = numbers(tmp_path / "wsdream.csv")
    labels = list(dict.fromkeys(row["bin"] for row in rows))
    for rate in ("0.05", "0.1"):
        for repeat in ("0", "1"):
            medians = {
                label: [
                    float(row["median"])
                    for row in rows
                    if (row["rate"], row["repeat"], row["bin"]) == (rate, repeat, label)
                ]
                for label in labels
            }
            assert medians[labels[1]] == sorted(medians[labels[1]])
            assert medians[labels[-1]] == sorted(medians[labels[-1]], reverse=True)


@pytest.mark.thorough
@pytest.mark.compiled
def test_more_measurements_recover_more_and_faster():
    options = {"size": 10, "k": 1, "trials": 3, "omegas": (0.1, 0.5)}
    shares = phase_diagram.run(ratios=(1.0, 4.0), **options).values
    assert (shares[1] == 1).all()
    assert shares[0].sum() < shares[1].sum()
    factors = convergence_rate.run(ratios=(2.5, 6.0), **options).values
    assert (factors[1] < factors[0]).all()
    assert (factors[:, 1] < factors[:, 0]).all()  # least squares is fastest
    assert np.isfinite(factors).all()


# --- the page in a browser ------------------------------------------------------------------


@pytest.mark.subprocess
def test_the_page_opens_in_a_browser_and_asks_for_nothing(browser, tmp_path):
    command = ["reproduce", "synthetic", "--out", str(tmp_path), "--size", "30"]
    assert main([*command, *QUICK]) == 0
    page = tmp_path / "synthetic.html"
    text = page.read_text()
    assert not re.search(r"(src|href)=.(?!data:)", text)
    assert "default-src 'none'" in text
    # Pictures that the page's own policy or a decoder refused have no width.
    script = (
        "<script>onload = () => { document.title = JSON.stringify(["
        "[...document.images].map(i => i.naturalWidth), "
        "performance.getEntriesByType('resource').map(e => e.name.slice(0, 5))]) }</script>"
    )
    probe = tmp_path / "probe.html"
    probe.write_text(text.replace("img-src", "script-src 'unsafe-inline'; img-src") + script)
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    done = subprocess.run(
        [browser, *options, "--virtual-time-budget=5000", "--dump-dom", probe.as_uri()],
        capture_output=True, text=True,
    )  # fmt: skip
    widths, requests = re.search(r"<title>\[\[(.*?)\],\[(.*?)\]\]</title>", done.stdout).groups()
    assert [int(width) > 500 for width in widths.split(",")] == [True] * 3
    assert set(filter(None, requests.split(","))) <= {'"data:"'}
    assert done.stdout.count("<table>") == 2

"""The command line and the package's own face."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fastemf
from fastemf.cli import main
from fastemf.commands.info import describe


def test_demo_prints_a_table(capsys):
    assert main(["demo", "--size", "24", "--rank", "2", "--density", "0.5"]) == 0
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines() if line.strip()[:2] == "0."]
    assert [row[0] for row in rows] == ["0.10", "0.50", "0.90"]
    levels = [float(row[4]) for row in rows]
    assert levels == sorted(levels)
    assert "w_eff" in out
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "0"], "m must be at least 1, got 0"),
        (["--density", "2"], r"density must lie in (0, 1], got 2.0"),
        (["--size", "5", "--rank", "9"], "k must be at most min(rows, columns) = 5"),
        (["--size", "6", "--rank", "1", "--density", "1"], "density must leave cells"),
    ],
)
def test_user_errors_are_one_line_and_exit_code_two(arguments, message, capsys):
    assert main(["demo", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


@pytest.mark.subprocess
def test_version_and_module():
    done = subprocess.run(
        [sys.executable, "-m", "fastemf", "--version"], capture_output=True, text=True
    )
    assert done.stdout.strip() == f"fastemf {fastemf.__version__}"


@pytest.mark.subprocess
def test_help_does_not_load_numba():
    code = "import sys; sys.argv = ['fastemf', '--help']\n"
    code += "from fastemf.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "print('numba' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False False"


def test_public_names_are_there_and_documented():
    for name in fastemf.__all__:
        value = getattr(fastemf, name)
        assert name in dir(fastemf)
        assert isinstance(value, str) or value.__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fastemf.nothing


@pytest.mark.parametrize("is_judged", [False, True])
def test_info_tells_the_objective_of_the_factors(is_judged):
    R = fastemf.datasets.make_skewed(14, 11, rank=2, density=0.8, random_state=0).R.tocsr()
    options = {"validation": R[::-1], "patience": 100} if is_judged else {}
    fit = fastemf.complete(
        R, 0.3, 3, reg=0.01, tol=0, callback=lambda record: not record.accepted, **options
    )
    assert not fit.history[-1].accepted
    (level,) = describe(fit)["levels"]
    assert level["objective"] == pytest.approx(fit.objective(R), rel=1e-12)

"""The command line and the package's own face."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fastemf
from fastemf.cli import main


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


def test_version_and_module():
    done = subprocess.run(
        [sys.executable, "-m", "fastemf", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == f"fastemf {fastemf.__version__}"


def test_help_does_not_load_numba():
    code = "import sys; sys.argv = ['fastemf', '--help']\n"
    code += "from fastemf.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "print('numba' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False False"


def test_public_names_are_there_and_documented():
    for name in fastemf.__all__:
        value = getattr(fastemf, name)
        assert name in dir(fastemf)
        assert isinstance(value, str) or value.__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fastemf.nothing

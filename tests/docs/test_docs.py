"""The pages in docs/ and the README run as they are printed."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
pytestmark = [pytest.mark.docs, pytest.mark.compiled]


def blocks(page, language):
    """Fenced blocks of a page that are not commands of the README for a fresh machine."""
    text = re.sub(r"<!-- command: .*?\n```sh\n.*?```", "", page.read_text(), flags=re.DOTALL)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf-8"
    )
    assert results.failed == 0


@pytest.mark.parametrize(
    "name",
    ["first_fit", "levels_and_coverage", "more_than_memory", "better_than_a_median", "p95",
     "day_two"],
)  # fmt: skip
def test_commands_of_a_page_run(name, tmp_path):
    (shell,) = blocks(ROOT / "docs" / f"{name}.md", "sh")
    run_in_shell(shell, tmp_path)
    assert (tmp_path / "log.csv").exists()


def test_examples_of_the_readme_run(tmp_path, monkeypatch):
    shell = blocks(ROOT / "README.md", "sh")[1]  # the first one installs
    run_in_shell(shell, tmp_path)
    (python,) = blocks(ROOT / "README.md", "python")
    monkeypatch.chdir(tmp_path)
    code, last = python.rstrip().rsplit("\n", 1)
    names = {}
    exec(code, names)
    predicted = eval(last, names)
    assert predicted.shape == (1, 3)
    assert (predicted[0, 1:] >= predicted[0, :-1]).all()


def run_in_shell(text, folder):
    command = f'fastemf() {{ "{sys.executable}" -m fastemf "$@"; }}\n{text}'
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

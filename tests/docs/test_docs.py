"""The examples of the README and of the pages in docs/ run and print what the pages show."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fastemf.cli import main

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
NUMBER = re.compile(r"\d[\d,]*\.?\d*(?:e[+-]?\d+)?")
pytestmark = [pytest.mark.docs, pytest.mark.compiled]


class CloseNumbers(doctest.OutputChecker):
    """Compare the text exactly, but for white space, and the numbers with a tolerance."""

    def check_output(self, want, got, optionflags):
        texts = [" ".join(NUMBER.sub("#", text).split()) for text in (want, got)]
        numbers = [
            [float(number.replace(",", "")) for number in NUMBER.findall(text)]
            for text in (want, got)
        ]
        return texts[0] == texts[1] and numbers[1] == pytest.approx(numbers[0], rel=0.1, abs=0.02)


def blocks(page, language):
    """Return the fenced blocks of a page, without the README's commands for a fresh machine."""
    text = re.sub(r"<!-- command: .*?\n```sh\n.*?```", "", page.read_text(), flags=re.DOTALL)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_examples(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = "\n\n".join(blocks(page, "python"))
    examples = doctest.DocTestParser().get_doctest(source, {}, page.name, page.name, 0)
    assert doctest.DocTestRunner(CloseNumbers()).run(examples).failed == 0


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem != "paper" and blocks(page, "sh")],
    ids=lambda page: page.stem,
)  # fmt: skip
def test_page_commands(page, tmp_path):
    (shell,) = blocks(page, "sh")
    run_in_shell(shell, tmp_path)
    assert (tmp_path / "log.csv").exists()


def test_readme_examples(tmp_path, monkeypatch):
    """The commands are among those of a page, which are run; the Python example runs here."""
    _install, shell = blocks(ROOT / "README.md", "sh")
    (page,) = blocks(ROOT / "docs" / "p95.md", "sh")
    commands, of_page = (re.sub(" +#.*", "", text).splitlines() for text in (shell, page))
    assert set(commands) <= set(of_page)
    monkeypatch.chdir(tmp_path)
    main(["demo", "--out", "log.csv"])
    (python,) = blocks(ROOT / "README.md", "python")
    code, last = python.rstrip().rsplit("\n", 1)
    names = {}
    exec(code, names)
    shown = [float(number) for number in re.findall(r"\d+\.\d", last)]
    assert eval(last, names).tolist() == [pytest.approx(shown, rel=0.1)]


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *PAGES, ROOT / "bench" / "README.md"])
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_contributing_names_files_and_code_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`([\w./]+(?:\.py|\.toml|/))`", text)
    assert len(paths) > 50
    folders = (ROOT, ROOT / "fastemf")
    assert [path for path in paths if not any((f / path).exists() for f in folders)] == []
    sources = "\n".join(path.read_text() for path in (ROOT / "fastemf").rglob("*.py"))
    names = re.findall(r"`(_?[a-z]+_[a-z_]+|(?!FASTEMF)[A-Z]\w+)`", text)
    assert len(names) > 20
    assert [name for name in names if not re.search(rf"\b{name}\b", sources)] == []


def run_in_shell(text, folder):
    command = f'fastemf() {{ "{sys.executable}" -m fastemf "$@"; }}\n{text}'
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

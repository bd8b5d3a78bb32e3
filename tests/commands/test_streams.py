"""Commands write all of their output or fail, show no control characters, and keep their input."""

import csv
import io
import os
import pty
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import fastemf
from fastemf.cli import main
from fastemf.inputs import table_files
from fastemf.support.terminal import escape_control

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(fastemf.__file__).parents[1])}
MODES = {"buffered": {}, "unbuffered": {"PYTHONUNBUFFERED": "1"}}
# Labels that clear the screen, forge a line, and must be quoted in CSV.
HOSTILE = ["\x1b[2Jeu", "a\r\nfastemf: all is well", 'say "b",\t', "\x85\u2028\u202ec", "plain"]
SHOWN = r"\x1b[2Jeu"
NAMES = ["--rows", "client", "--cols", "service", "--values", "ms"]
SMALL = ["-k", "1", "--max-iter", "2", "--tol", "0.5"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A log, with a model of it, that the tests copy."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    i, j = rng.integers(30, size=150), rng.integers(8, size=150)
    log = {"client": [f"eu-{n}" for n in i], "service": [f"s{n}" for n in j]}
    table_files.write_table(folder / "log.csv", log | {"ms": rng.gamma(2, 20, 150)})
    with warnings.catch_warnings(action="ignore"):
        assert main(["fit", f"{folder}/log.csv", *SMALL, "-o", f"{folder}/model.npz"]) == 0
    return folder


@pytest.fixture(autouse=True)
def here(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def in_a_shell(line, **environment):
    """A line of a shell in which $F is the command; returns code, output and errors."""
    environment["F"] = f"{sys.executable} -m fastemf"
    done = subprocess.run(
        ["bash", "-c", line], env=ENVIRONMENT | environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def refused(capsys, *argv):
    capsys.readouterr()
    before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    assert main(list(map(str, argv))) == 2
    assert before == {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    return capsys.readouterr().err


# --- complete writes ----------------------------------------------------------------------------

PRINTING = [
    "predict model.npz log.csv", "rank model.npz --order smallest", "info model.npz --json",
    "rank model.npz --order smallest --json", "info model.npz", "evaluate model.npz log.csv",
    "evaluate model.npz log.csv --json", "demo --out -", "store info store",
    "fit log.csv -k 1 --max-iter 2 --tol .5 -o new.npz", "demo --size 30 --rank 1",
    "select log.csv --ks 1 --regs noise --folds 2 --max-iter 2",
]  # fmt: skip


full_device = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")


@full_device
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("mode", MODES)
def test_every_command_fails_on_a_full_disk(mode, capsys, monkeypatch):
    assert main(["store", "build", "log.csv", *NAMES, "-o", "store"]) == 0
    for line in PRINTING:
        raw = io.FileIO("/dev/full", "w")
        buffer = raw if mode == "unbuffered" else io.BufferedWriter(raw)
        stream = io.TextIOWrapper(buffer, "utf-8", write_through=mode == "unbuffered")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            assert main(line.split()) == 2, line
        stream.close()  # nothing is left to be written
        last = capsys.readouterr().err.splitlines()[-1]
        assert last == "fastemf: standard output: No space left on device", line


@pytest.mark.subprocess
@full_device
@pytest.mark.parametrize("mode", MODES)
def test_full_disks_and_closed_streams_in_a_shell(mode):
    for line in ("predict model.npz log.csv", "info model.npz", "fit --help"):
        for target, reason in (
            (">/dev/full", "No space left on device"), (">&-", "Bad file descriptor"),
        ):  # fmt: skip
            end = in_a_shell(f"$F {line} {target}", **MODES[mode])
            assert end == (2, "", f"fastemf: standard output: {reason}\n")


@pytest.mark.subprocess
def test_a_command_that_prints_nothing_needs_no_stream():
    assert in_a_shell("$F demo --out demo.csv >&- 2>&-") == (0, "", "")
    assert Path("demo.csv").stat().st_size > 50_000


@pytest.mark.subprocess
@pytest.mark.parametrize("mode", MODES)
def test_the_disk_is_full_after_a_part(mode):
    """A system call writes the part that fits, and only the next one fails."""
    line = "ulimit -f 8; trap '' XFSZ; $F demo --out - >part.csv"
    code, _, err = in_a_shell(line, **MODES[mode])
    first, *_ = err.splitlines()  # a measurement of coverage cannot write either
    assert (code, first) == (2, "fastemf: standard output: File too large")
    assert Path("part.csv").stat().st_size in range(1, 8 * 1024 + 1)


@pytest.mark.subprocess
@pytest.mark.parametrize("mode", MODES)
def test_a_slow_reader_of_a_pipe_that_does_not_block_gets_everything(mode):
    main(["demo", "--out", "demo.csv"])
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    argv = [sys.executable, "-m", "fastemf", "demo", "--out", "-"]
    with subprocess.Popen(argv, stdout=writer, env=ENVIRONMENT | MODES[mode]) as process:
        os.close(writer)
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            parts = list(iter(lambda: pipe.read(1000), b""))
    assert process.returncode == 0
    assert b"".join(parts) == Path("demo.csv").read_bytes()


@pytest.mark.subprocess
@pytest.mark.parametrize("mode", MODES)
def test_a_reader_that_has_seen_enough(mode):
    """The exit code is that of programs that SIGPIPE ends; nothing is said."""
    line = 'set -o pipefail; $F demo --out - | head -2; echo "${PIPESTATUS[0]}"'
    code, out, err = in_a_shell(line, **MODES[mode])
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == '"client","service","ms"'
    assert out.splitlines()[2:] == ["141"]


# --- control characters -------------------------------------------------------------------------


@pytest.fixture
def hostile():
    """A log with hostile labels and column names, as a file with such a name, and its model."""
    rng = np.random.default_rng(0)
    log = {
        "cli\x1b[1ment": HOSTILE * 8, "ser\nvice": np.repeat(["x\x1b", "y", "z\x07", "w"], 10),
        "ms": rng.gamma(2, 20, 40),
    }  # fmt: skip
    path = "lo\x1b[5m\ng.csv"
    table_files.write_table(path, log)
    with warnings.catch_warnings(action="ignore"):
        fastemf.complete(
            path, 0.5, 1, rows="cli\x1b[1ment", cols="ser\nvice", values="ms", max_iter=2
        ).save("mo\x1bdel.npz")
    return path


def harmless(text):
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.filterwarnings("default")
def test_printed_text_has_no_control_characters(hostile, capsys):
    model = "mo\x1bdel.npz"
    for argv in (
        ["info", model], ["info", model, "--json"], ["evaluate", model, hostile],
        ["fit", hostile, *SMALL, "-o", "ne\x1bw.npz"],
        ["rank", model, HOSTILE[0], "--order", "smallest", "--json"],
        ["store", "build", hostile, "--rows", "cli\x1b[1ment", "--cols", "ser\nvice",
         "--values", "ms", "-o", "st\x1bore"],
        ["store", "info", "st\x1bore"],
    ):  # fmt: skip
        assert main(argv) == 0
        out, err = capsys.readouterr()
        assert out
        assert harmless(out + err), argv
    main(["info", model])
    assert f"{SHOWN}, a\\r\\nfastemf: all is well" in capsys.readouterr().out
    fit = fastemf.load(model)
    assert harmless(str(fit) + str(fit.summary(hostile)))


def test_messages_have_no_control_characters(hostile, capsys):
    model = "mo\x1bdel.npz"
    for argv in (
        ["info", "no\x1b[2J.npz"], ["fit", hostile, "--rows", "x\x1b", "-o", "new.npz"],
        ["predict", model, "none\r\n.csv"], ["fit", hostile, "-o", model],
        ["rank", model, "who\x1b[2J", "--order", "smallest"],
        ["predict", model, "log.csv"], ["fit", "log.csv", "--rows=x\x1b", "-o", "new.npz"],
    ):  # fmt: skip
        err = refused(capsys, *argv)
        assert harmless(err)
        assert err.count("\n") == 1
    with pytest.raises(SystemExit):
        main(["info", "a", "b\x1b[2J\r\nfastemf: all is well"])
    err = capsys.readouterr().err
    assert harmless(err)
    assert r"b\x1b[2J\r\nfastemf: all is well" in err


def test_names_in_errors_of_python_are_escaped(hostile):
    with pytest.raises(ValueError, match=r"^lo\\x1b\[5m\\ng\.csv has no column") as caught:
        fastemf.complete(hostile, 0.5, 1, rows="no", cols="ser\nvice", values="ms")
    assert str(caught.value).isprintable()


def test_predictions_in_files_and_pipes_keep_labels(hostile, capsys):
    model = "mo\x1bdel.npz"
    assert main(["predict", model, hostile]) == 0
    header, *lines = csv.reader(io.StringIO(capsys.readouterr().out, newline=""))
    assert header == ["cli\x1b[1ment", "ser\nvice", "prediction"]
    assert [line[0] for line in lines] == HOSTILE * 8
    assert main(["predict", model, hostile, "-o", "out.csv"]) == 0
    assert main(["predict", model, "out.csv"]) == 0  # and are read again
    assert list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))[1:] == lines


@pytest.mark.subprocess
def test_predictions_on_a_terminal_escape_labels(hostile):
    shown, terminal = pty.openpty()
    argv = [sys.executable, "-m", "fastemf", "predict", "mo\x1bdel.npz", hostile]
    with subprocess.Popen(argv, stdout=terminal, env=ENVIRONMENT) as process:
        os.close(terminal)
        text = b""
        try:
            while part := os.read(shown, 10_000):
                text += part
        except OSError:  # the end of a terminal
            pass
    os.close(shown)
    assert process.returncode == 0
    lines = text.decode().split("\r\n")
    assert len(lines) == 1 + 40 + 1
    assert harmless("\n".join(lines))
    assert lines[1].startswith(f'"{SHOWN}","x\\x1b",')


def test_only_control_characters_are_escaped():
    text = "Zürich 東京 👨\u200d👩 a\u00a0b\\n"
    assert escape_control(text) == text
    assert escape_control("\0\t\x7f\x9b\u2029\u2066\udcff") == r"\x00\t\x7f\x9b\u2029\u2066\udcff"


# --- output over input --------------------------------------------------------------------------


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_the_output_must_not_be_an_input(force, capsys, monkeypatch):
    os.symlink("log.csv", "link.csv")
    os.link("log.csv", "hard.csv")
    Path("folder").mkdir()
    os.symlink("../log.csv", "folder/part.csv")
    absolute = str(Path("log.csv").resolve())
    predict = ["predict", "model.npz"]
    query = "SELECT client, service FROM 'log.csv'"
    for argv, out in (
        *([[*predict, "log.csv"], out] for out in ("log.csv", "./log.csv", absolute)),
        ([*predict, "log.csv"], "link.csv"), ([*predict, "link.csv"], "log.csv"),
        ([*predict, "log.csv"], "hard.csv"), ([*predict, "folder"], "log.csv"),
        ([*predict, "l*.csv"], "log.csv"), ([*predict, "--sql", query], "log.csv"),
        (["rank", "model.npz", "--order", "smallest", "--seen", "log.csv"], "log.csv"),
        (["fit", "log.csv", *SMALL], "log.csv"), (["select", "log.csv"], "log.csv"),
        (["quantiles", "log.csv", "--row-features", "log.csv"], "log.csv"),
        (["report", "model.npz", "log.csv"], "log.csv"),
        (["report", "model.npz", "log.csv"], "model.npz"),
        (["update", "model.npz", "log.csv", "--all"], "log.csv"),
    ):  # fmt: skip
        expected = f"fastemf: --out {out} is an input of this command, which it would replace\n"
        assert refused(capsys, *argv, "-o", out, *force) == expected
    plot = refused(capsys, "select", "log.csv", "--plot", "log.csv", *force)
    assert plot.startswith("fastemf: --plot log.csv is an input")
    with open("log.csv") as stream:
        monkeypatch.setattr(os, "stat", _stat_of(stream, os.stat))
        assert "--out log.csv is an input" in refused(capsys, *predict, "-", "-o", "log.csv")


def _stat_of(stream, stat):
    """os.stat with the stream in place of standard input."""
    return lambda path, **given: stat(stream.fileno() if path == 0 else path, **given)


@pytest.mark.filterwarnings("default")
def test_a_model_is_updated_in_place(capsys):
    update = ["update", "model.npz", "log.csv", "--all", "-o", "model.npz"]
    assert "model.npz exists; --force replaces it" in refused(capsys, *update)
    before = Path("model.npz").read_bytes()
    assert main([*update, "--force"]) == 0
    assert fastemf.load("model.npz").shape[1] == 8
    assert Path("model.npz").read_bytes() != before

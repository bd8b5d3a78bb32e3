"""Builds and appends of stores that race or are killed at any moment are atomic.

Cases follow from a seed, which is printed, and run in processes of their own.
``FASTEMF_FUZZ=20000 pytest -s -m slow tests/fuzz/test_fuzz_builds.py`` sets how long the long runs
are: a race for every 25 of them, and a kill for every 100.
"""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from test_fuzz_stores import LONG, MANY, entries, run

from fastemf import store
from fastemf.sources.store.folders import MARK, SCRATCH, STAGE
from fastemf.sources.store.manifest import Manifest

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.subprocess,
    pytest.mark.skipif(sys.platform == "win32", reason="needs signals and locks of POSIX"),
]


FEW = {"races": 5, "kills": 5, "append_races": 5, "append_kills": 8}
OFTEN = {"races": 25, "kills": 100, "append_races": 100, "append_kills": 8}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=LONG)])
@pytest.mark.parametrize("what", FEW)
def test_builds(what, seed):
    run(__file__, what, seed, MANY // OFTEN[what] if seed else FEW[what], None if seed else 600)


@contextmanager
def processes_of(*commands):
    """Run tasks of this file in processes, and wait for them at the end."""
    python = [sys.executable, "-W", "ignore", __file__]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([*python, *command], **pipes) for command in commands]
    try:
        yield started
    finally:
        for process in started:
            process.stdin.close()
            process.wait()


def tell(process, line):
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


# --- races ---------------------------------------------------------------------------------------

RACERS = 4


def racer():
    """Build the given stores at the given times, and report the outcome."""
    R = entries(np.random.default_rng(0))
    for line in sys.stdin:
        target, at = line.split()
        while time.time() < float(at):
            pass
        try:
            store.build(R, target)
            print("won", flush=True)
        except FileExistsError as error:
            print("lost" if target.rsplit("/")[-1] in str(error) else repr(error), flush=True)
        except BaseException as error:
            print(repr(error), flush=True)


def leave(place):
    """Create the leftovers of a killed build."""
    for folder in (STAGE, SCRATCH):
        (place / folder).mkdir(parents=True)
    (place / MARK).touch()
    (place / SCRATCH / "spill.rows").write_bytes(b"\0" * 1000)


def races(seed, count):
    """Let processes build one store at once: exactly one succeeds, without leftovers.

    No build succeeds if a folder of the user is in the way, which stays.
    """
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as base, processes_of(*[["racer"]] * RACERS) as processes:
        for number in range(count):
            target = Path(base, f"store{number}")
            place = target.with_name(f".{target.name}.partial")
            kind = rng.choice(["nothing", "a leftover", "a folder of the user"])
            print(f"case {number}: {kind}", flush=True)
            if kind == "a leftover":
                leave(place)
            elif kind == "a folder of the user":
                place.mkdir()
                (place / "mine").touch()
            spread, start = rng.choice([0, 0.002, 0.02]), time.time() + 0.02
            for process in processes:
                tell(process, f"{target} {start + spread * rng.random()}")
            ends = sorted(process.stdout.readline().strip() for process in processes)
            left = list(Path(base).rglob("*"))
            if kind == "a folder of the user":
                assert ends == ["lost"] * RACERS, ends
                assert left == [place, place / "mine"]
                shutil.rmtree(place)
                continue
            assert ends == ["lost"] * (RACERS - 1) + ["won"], ends
            assert not [path for path in left if path.name.startswith(".")]
            store.verify(target)
            shutil.rmtree(target)
    print(f"{count} races of {RACERS}, at most one winner each")


# --- kills ---------------------------------------------------------------------------------------


def in_child(job):
    """Fork; return the process id of the child, whose exit status reports success."""
    child = os.fork()
    if child == 0:
        try:
            job()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def finish(job):
    assert os.waitpid(in_child(job), 0)[1] == 0


def on_step(act):
    """Call a function before every operation of this process on files of a store's folder."""

    def hook(name, args):
        if name in STEPS and any("fastemf-kills" in str(arg) for arg in args):
            act()

    sys.addaudithook(hook)


STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def count_steps(job, file):
    """Count the operations of a job in a child, which writes the count to a file."""

    def counted():
        numbers = itertools.count()
        on_step(lambda: next(numbers))
        job()
        file.write_text(str(next(numbers)))

    finish(counted)
    count = int(file.read_text())
    file.unlink()
    return count


def kill_at(step):
    """Kill this process before operation `number`."""
    numbers = itertools.count()
    on_step(lambda: next(numbers) == step and os.kill(os.getpid(), signal.SIGKILL))


def kills(seed, count):
    """Kill builds at any moment: there is a complete store or none, and the next build works."""
    # This process runs no kernel itself: its children start with no threads.
    R = entries(np.random.default_rng(0))
    whole = done = 0
    with tempfile.TemporaryDirectory("fastemf-kills") as base:
        target = Path(base, "store")

        def build():
            store.build(R, target, memory_limit=2000)

        begun = time.monotonic()
        steps = count_steps(build, Path(base, "steps"))
        usual = time.monotonic() - begun
        shutil.rmtree(target)
        for number in range(count):
            rng = random.Random(f"{seed}/{number}")
            step = rng.randrange(steps) if rng.random() < 0.7 else None
            child = in_child(lambda step=step: (kill_at(step), build()))
            if step is None:
                time.sleep(usual * rng.uniform(0.2, 1))
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            done += os.WIFSIGNALED(status)
            print(f"case {number}: step {step} of {steps}, status {status}", flush=True)
            if target.exists():
                whole += 1
                store.verify(target)
                shutil.rmtree(target)
            finish(build)
            store.verify(target)
            shutil.rmtree(target)
            assert not list(Path(base).iterdir())
    print(f"{done} of {count} builds killed, {whole} left a whole store")


# --- appends -------------------------------------------------------------------------------------


def values_of(path):
    """All values of a store, sorted."""
    return np.sort(store.read_block(path, 0, 0, store.open(path).shape[0]).values)


def appender(seed, count):
    """Append to the given store; try again while another process appends."""
    target = sys.stdin.readline().strip()
    for number in range(count):
        while True:
            try:
                store.append(target, ([seed], [number], [100.0 * seed + number + 1]))
                break
            except FileExistsError:
                time.sleep(0.001)
    print("done", flush=True)


def append_races(seed, count):
    """Let processes append to one store, and read it meanwhile: nothing is lost."""
    each, seen = count + random.Random(seed).randrange(5), 0
    commands = [["appender", str(number), str(each)] for number in range(1, RACERS + 1)]
    with tempfile.TemporaryDirectory() as base:
        target = Path(base, "store")
        store.build(([0], [0], [0.5]), target)
        with processes_of(*commands) as processes:
            for process in processes:
                tell(process, target)
            while any(process.poll() is None for process in processes):
                opened = store.open(target)
                assert sum(block.size for _, block in opened.by_row.blocks()) == opened.size
                assert opened.size >= seen
                seen = opened.size
            assert [process.stdout.read().strip() for process in processes] == ["done"] * RACERS
        del opened
        store.verify(target)
        numbers = [100.0 * n + at + 1 for n in range(1, RACERS + 1) for at in range(each)]
        np.testing.assert_array_equal(values_of(target), np.sort([0.5, *numbers]))
    print(f"{RACERS} processes appended {each} times each")


def append_kills(seed, count):
    """Kill appends at any moment: the store has its old or new state, and accepts appends."""
    import pyarrow as pa

    columns = {"r": [3, 90], "c": [5, 2], "b": [7.0, 8.0]}
    table = pa.table(columns | {"twice": [14.0, 16.0]})
    new = 0
    with tempfile.TemporaryDirectory("fastemf-kills") as base:
        target, first = Path(base, "store"), Path(base, "first")
        finish(lambda: build_first(first))

        def append():
            store.append(target, table, memory_limit=2000)

        shutil.copytree(first, target)
        old = values_of(first)
        steps = count_steps(append, Path(base, "steps"))
        for number in range(count):
            step = random.Random(f"{seed}/{number}").randrange(steps)
            shutil.rmtree(target)
            shutil.copytree(first, target)
            _, status = os.waitpid(in_child(lambda step=step: (kill_at(step), append())), 0)
            print(f"case {number}: step {step} of {steps}, status {status}", flush=True)
            assert os.WIFSIGNALED(status)
            store.verify(target)
            is_new = values_of(target).size > old.size
            new += is_new
            expected = np.sort([*old, *[7.0, 8.0] * is_new])
            np.testing.assert_array_equal(values_of(target), expected)
            finish(append)
            store.verify(target)
            values = values_of(target)
            np.testing.assert_array_equal(values, np.sort([*expected, 7.0, 8.0]))
            kept = np.sort(store.open(target).read_columns()["twice"])
            np.testing.assert_array_equal(kept, 2 * values)
            left = {path.name for path in target.iterdir()}
            assert left == {"manifest.json", f"data-{Manifest.read(target).generation}"}
    print(f"{count} appends killed, {new} of them when the store was new")


def build_first(path):
    """Build a store with a further column, and append once."""
    import pyarrow as pa

    names = {"rows": "r", "cols": "c", "values": "b"}
    for seed in range(2):
        rows, cols, values = entries(np.random.default_rng(seed))
        table = pa.table({"r": rows, "c": cols, "b": values, "twice": 2 * values})
        if seed == 0:
            store.build(table, path, shape=(8, 6), columns=["twice"], **names)
        else:
            store.append(path, table)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    tasks = (races, racer, kills, append_races, appender, append_kills)
    {task.__name__: task for task in tasks}[sys.argv[1]](*map(int, sys.argv[2:]))

"""Builds of stores that race, and that are killed at any moment: one store, whole, or none.

And appends, after which a store is the old one or the new one, and has all that was added.

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
from pathlib import Path

import numpy as np
import pytest
from test_fuzz_stores import MANY, entries, run

from fastemf import store
from fastemf.store.compaction import MOST
from fastemf.store.manifest import Manifest
from fastemf.store.workplace import FILES, MARK, MARK_TEXT

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.subprocess,
    pytest.mark.skipif(sys.platform == "win32", reason="needs signals and locks of POSIX"),
]


@pytest.mark.parametrize(
    ("what", "count"), [("races", 5), ("kills", 5), ("append_races", 5), ("append_kills", 25)]
)
def test_builds_a_little(what, count):
    run(__file__, what, 0, count, 600)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("what", "count"),
    [("races", MANY // 25), ("kills", MANY // 100), ("append_races", MANY // 100),
     ("append_kills", MANY // 25)],
)  # fmt: skip
def test_builds_at_length(what, count):
    run(__file__, what, 1, count, None)


# --- races ---------------------------------------------------------------------------------------

RACERS = 4


def racer():
    """Build the stores that are named, each at its time, and say what came of it."""
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
    """Put there what a killed build leaves."""
    (place / FILES).mkdir(parents=True)
    (place / MARK).write_bytes(MARK_TEXT)
    (place / FILES / "spill.rows").write_bytes(b"\0" * 1000)


def races(seed, count):
    """Let processes build one store at once: one of them wins, and nothing else is left."""
    rng = random.Random(seed)
    command = [sys.executable, "-W", "ignore", __file__, "racer"]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(RACERS)
    ]
    try:
        with tempfile.TemporaryDirectory() as base:
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
                    process.stdin.write(f"{target} {start + spread * rng.random()}\n")
                    process.stdin.flush()
                ends = sorted(process.stdout.readline().strip() for process in processes)
                assert ends == ["lost"] * (RACERS - 1) + ["won"], ends
                store.verify(target)
                left = [path for path in Path(base).iterdir() if path.name.startswith(".")]
                if kind == "a folder of the user":
                    assert left == [place]
                    assert [path.name for path in place.iterdir()] == ["mine"]
                    shutil.rmtree(place)
                else:
                    assert left == []
                shutil.rmtree(target)
    finally:
        for process in processes:
            process.stdin.close()
            process.wait()
    print(f"{count} races of {RACERS}, one winner each")


# --- kills ---------------------------------------------------------------------------------------


def in_child(job):
    """Fork; return the child's number, whose exit status tells whether the job raised nothing."""
    child = os.fork()
    if child == 0:
        try:
            job()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def on_step(act):
    """Call a function before every operation of this process on files of a store's folder."""

    def hook(name, args):
        if name in STEPS and any("fastemf-kills" in str(arg) for arg in args):
            act()

    sys.addaudithook(hook)


STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def kill_at(step):
    """Kill this process before the operation of that number."""
    numbers = itertools.count()
    on_step(lambda: next(numbers) == step and os.kill(os.getpid(), signal.SIGKILL))


def kills(seed, count):
    """Kill builds at any moment: there is no store or a whole one, and the next build works."""
    # This process runs no kernel itself: its children start with no threads.
    R = entries(np.random.default_rng(0))
    whole = done = 0
    with tempfile.TemporaryDirectory("fastemf-kills") as base:
        target = Path(base, "store")

        def build():
            store.build(R, target, budget=2000)

        def counted():
            numbers = itertools.count()
            on_step(lambda: next(numbers))
            build()
            os._exit(next(numbers))

        begun = time.monotonic()
        _, status = os.waitpid(in_child(counted), 0)
        usual, steps = time.monotonic() - begun, os.WEXITSTATUS(status)
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
            _, status = os.waitpid(in_child(build), 0)
            assert status == 0
            store.verify(target)
            shutil.rmtree(target)
            for rest in Path(base).iterdir():  # a place that was not marked yet has nothing in it
                assert not [path for path in rest.iterdir() if path.stat().st_size]
                shutil.rmtree(rest)
    print(f"{done} of {count} builds killed, {whole} left a whole store")


# --- appends -------------------------------------------------------------------------------------


def values_of(path):
    """All values of a store, sorted."""
    return np.sort(store.read_block(path, 0, 0, store.open(path).shape[0]).values)


def appender(seed, count):
    """Append to the store that is named, again where another process is at it."""
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
    rng = random.Random(seed)
    pipe = subprocess.PIPE
    with tempfile.TemporaryDirectory() as base:
        target = Path(base, "store")
        store.build(([0], [0], [0.5]), target)
        each = count + rng.randrange(5)
        commands = [
            [sys.executable, "-W", "ignore", __file__, "appender", str(number), str(each)]
            for number in range(1, RACERS + 1)
        ]
        processes = [subprocess.Popen(one, stdin=pipe, stdout=pipe, text=True) for one in commands]
        try:
            for process in processes:
                process.stdin.write(f"{target}\n")
                process.stdin.flush()
            seen = 0
            while any(process.poll() is None for process in processes):
                opened = store.open(target)
                assert sum(block.size for _, block in opened.by_row.blocks()) == opened.size
                assert opened.size >= seen
                seen = opened.size
            assert [process.stdout.read().strip() for process in processes] == ["done"] * RACERS
        finally:
            for process in processes:
                process.stdin.close()
                process.wait()
        del opened
        store.verify(target)
        numbers = [100.0 * n + at + 1 for n in range(1, RACERS + 1) for at in range(each)]
        np.testing.assert_array_equal(values_of(target), np.sort([0.5, *numbers]))
    print(f"{RACERS} processes appended {each} times each")


def append_kills(seed, count):
    """Kill appends at any moment: the store is the old one or the new one, and can be added to."""
    new = 0
    with tempfile.TemporaryDirectory("fastemf-kills") as base:
        target, few = Path(base, "store"), Path(base, "few")
        assert os.waitpid(in_child(lambda: first_segments(few)), 0)[1] == 0

        def append():
            store.append(target, ([3, 90], [5, 2], [7.0, 8.0]), budget=2000)

        def counted():
            numbers = itertools.count()
            on_step(lambda: next(numbers))
            append()
            Path(base, "steps").write_text(str(next(numbers)))

        shutil.copytree(few, target)
        old = values_of(few)
        assert os.waitpid(in_child(counted), 0)[1] == 0
        steps = int(Path(base, "steps").read_text())
        for number in range(count):
            step = random.Random(f"{seed}/{number}").randrange(steps)
            shutil.rmtree(target)
            shutil.copytree(few, target)
            _, status = os.waitpid(in_child(lambda step=step: (kill_at(step), append())), 0)
            print(f"case {number}: step {step} of {steps}, status {status}", flush=True)
            assert os.WIFSIGNALED(status)
            store.verify(target)
            is_new = values_of(target).size > old.size
            new += is_new
            expected = np.sort([*old, *[7.0, 8.0] * is_new])
            np.testing.assert_array_equal(values_of(target), expected)
            assert os.waitpid(in_child(append), 0)[1] == 0
            store.verify(target)
            np.testing.assert_array_equal(values_of(target), np.sort([*expected, 7.0, 8.0]))
            used = {segment.folder for segment in Manifest.read(target).parts}
            left = {path.name for path in target.iterdir() if path.is_dir()}
            assert left == used - {""}
            assert not [path for path in target.iterdir() if path.name.startswith((".", "append"))]
    print(f"{count} appends killed, {new} of them when the store was new")


def first_segments(path):
    """Make a store of so many segments that the next append merges some."""
    store.build(entries(np.random.default_rng(0)), path)
    while len(Manifest.read(path).parts) < MOST:
        store.append(path, ([1, 2], [3, 4], [5.0, 6.0]))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    tasks = (races, racer, kills, append_races, appender, append_kills)
    {task.__name__: task for task in tasks}[sys.argv[1]](*map(int, sys.argv[2:]))

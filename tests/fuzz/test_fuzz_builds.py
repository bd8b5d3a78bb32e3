"""Builds of stores that race, and that are killed at any moment: one store, whole, or none.

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
from fastemf.store.workplace import FILES, MARK, MARK_TEXT

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.subprocess,
    pytest.mark.skipif(sys.platform == "win32", reason="needs signals and locks of POSIX"),
]


@pytest.mark.parametrize("what", ["races", "kills"])
def test_builds_a_little(what):
    run(__file__, what, 0, 5, 600)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("what", "count"), [("races", MANY // 25), ("kills", MANY // 100)])
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


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"races": races, "racer": racer, "kills": kills}[sys.argv[1]](*map(int, sys.argv[2:]))

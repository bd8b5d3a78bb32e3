"""Stores under fire: files mutated at random, builds that race, builds that are killed.

Every case follows from a seed, which is printed, and runs in a process of its own, so that a crash
is a failed test. ``FASTEMF_FUZZ=20000 pytest -s -m slow tests/fuzz/test_fuzz_stores.py`` sets how
many mutations the long runs do, and races and kills in proportion; ``FASTEMF_SEED`` the seed.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import fastemf
from fastemf import store
from fastemf.store import manifest as manifests
from fastemf.store.files import checksum
from fastemf.store.workplace import FILES, MARK, MARK_TEXT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals and locks of POSIX")
ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("FASTEMF_SEED", "0"))
MANY = int(os.environ.get("FASTEMF_FUZZ", "4000"))


def run(what, seed, count, seconds):
    """Run cases in another process, which must end by itself and well."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, what, str(seed), str(count)],
        cwd=ROOT, timeout=seconds, capture_output=True, text=True, errors="replace",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    told = f"{what}: seed {seed}, {count} cases\n{ended.stdout[-2000:]}\n{ended.stderr[-3000:]}"
    print(told)
    assert ended.returncode == 0, told


@pytest.mark.subprocess
@pytest.mark.parametrize(("what", "count"), [("mutations", 200), ("races", 5), ("kills", 5)])
def test_stores_a_little(what, count):
    run(what, SEED, count, 600)


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.parametrize(("what", "share"), [("mutations", 1), ("races", 25), ("kills", 100)])
@pytest.mark.timeout(0)
def test_stores_at_length(what, share):
    run(what, SEED + 1, max(1, MANY // share), None)


# --- stores to damage --------------------------------------------------------------------------

M, N, SIZE = 8, 6, 50


def entries(rng, dtype=np.float64):
    rows, cols = rng.integers(0, M, SIZE), rng.integers(0, N, SIZE)
    rows[:M], cols[:N] = np.arange(M), np.arange(N)
    return rows, cols, (rng.chisquare(3, SIZE) + 0.5).astype(dtype)


def build_all(folder):
    """Stores of every kind: positions and labels of every type, both types of values, weights."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    paths = [folder / name for name in ("plain", "single", "labels", "dates")]
    store.build(entries(rng), paths[0])
    store.build(entries(rng, np.float32), paths[1], weights=rng.uniform(0.5, 2, SIZE))
    rows, cols, values = entries(rng)
    names = {"rows": "r", "cols": "c", "values": "b"}
    table = {"r": [f"é{i}" for i in rows], "c": cols * 10, "b": values}
    store.build(pa.table(table | {"v": values}), paths[2], weights="v", **names)
    days = (np.datetime64("2026-11-17") + rows).astype("M8[ms]")
    store.build(
        pa.table(table | {"r": days, "c": cols.astype(np.uint64) + 2**63}), paths[3], **names
    )
    return paths


def fitted(path):
    """What a fit gives that reads block by block, and the labels."""
    fit = fastemf.complete(
        store.open(path, budget=200), 0.3, 2, intercepts=True, reg=0.1, max_iter=3, n_jobs=1
    )
    return fit.X, fit.Y, fit.row_intercepts, fit.col_intercepts, fit.row_labels, fit.col_labels


# --- mutations -----------------------------------------------------------------------------------

TEXTS = ["", "f8", "int64", "uint64", "str", "datetime64[ns]", "float32", "float64", "\n",
         "\ud800", "<f4", "<f8", "<i8", "<u8", "|u1", "|O", "../x", "rows.mass.npy",
         "x" * 5000]  # fmt: skip
NUMBERS = [0, 1, -1, 2, M, N, SIZE, M + 1, 2**31, 2**32, 2**63 - 1, 2**63, -(2**63), 10**300, 0.5,
           float("nan"), float("inf"), -0.0, 1e308]  # fmt: skip
OTHERS = [None, True, False, [], {}, [[]], [1, 2], {"kind": "str", "name": "r"}]
GARBAGE = [b"", b"\0", b"{", b"[" * 100_000, b'{"a":' * 30_000, b"9" * 9000, b"\xff\xfe{\0",
           b"null", b'"\xed\xa0\x80"', b"1e999", b"NaN"]  # fmt: skip
EXTREMES = [0, 1, -1, 2**31 - 1, -(2**31), 2**62, -(2**63), np.nan, np.inf, -np.inf, 1e300, 1e150,
            -1e-300, 1e-40, M, N, SIZE]  # fmt: skip


def places(tree, here=()):
    """Every place in a JSON value."""
    yield here
    if isinstance(tree, (dict, list)):
        for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(part, (*here, key))


def edit_manifest(folder, rng):
    path = folder / "manifest.json"
    if rng.random() < 0.1:
        path.write_bytes(rng.choice(GARBAGE))
        return
    fields = json.loads(path.read_text())
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        *way, last = rng.choice([place for place in places(fields) if place])
        within = fields
        for key in way:
            within = within[key]
        how = rng.random()
        if how < 0.15:
            del within[last]
        elif how < 0.25 and isinstance(within, dict):
            within[rng.choice(TEXTS)] = within.pop(last)
        elif how < 0.35 and isinstance(within[last], int):
            within[last] += rng.choice([-1, 1, 8])
        else:
            within[last] = rng.choice(rng.choice([TEXTS, NUMBERS, OTHERS]))
        if not fields:
            break
    path.write_text(json.dumps(fields))


def flip_bytes(folder, rng):
    path = rng.choice(sorted(folder.iterdir()))
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 2, 8])):
        content[rng.randrange(len(content))] ^= rng.choice(
            [1, 2, 0x40, 0x80, rng.randrange(1, 256)]
        )
    path.write_bytes(content)


def cut(folder, rng):
    path = rng.choice(sorted(folder.iterdir()))
    content = path.read_bytes()
    more = rng.choice([b"\0", b"\0" * 8, content[-8:], content])
    path.write_bytes(
        content[: rng.randrange(len(content))] if rng.random() < 0.6 else content + more
    )


def swap(folder, rng):
    one, other = rng.sample(sorted(folder.iterdir()), 2)
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    if rng.random() < 0.5:
        other.write_bytes(contents[0])


def replace(folder, rng):
    path = rng.choice(sorted(folder.iterdir()))
    aside = path.rename(folder.with_name("aside"))
    how = rng.randrange(7)
    if how == 0:
        path.symlink_to(path)
    elif how == 1:
        path.symlink_to("nowhere")
    elif how == 2:
        path.symlink_to(aside)  # which is no damage
    elif how == 3:
        path.symlink_to(rng.choice(["/dev/zero", "/dev/null", "/dev/full", "/proc/self/mem"]))
    elif how == 4:
        os.mkfifo(path)
    elif how == 5:
        path.mkdir()


def edit_arrays(folder, rng):
    for _ in range(rng.choice([1, 1, 2, 4])):
        path = rng.choice(sorted(folder.glob("*.npy")))
        array = np.load(path).copy()
        if array.size == 0:
            continue
        head = path.read_bytes()[: -array.nbytes]
        at = rng.randrange(array.size)
        with np.errstate(all="ignore"):
            how = rng.random()
            if how < 0.6:
                array[at] = np.array(rng.choice(EXTREMES)).astype(array.dtype)
            elif how < 0.8:
                array[[at, 0]] = array[[0, at]]
            else:
                array[at:] = array[at]
        path.write_bytes(head + array.tobytes())


MUTATIONS = [edit_manifest, flip_bytes, flip_bytes, cut, swap, replace, edit_arrays, edit_arrays]


def sign(folder):
    """Make all checksums right, where the manifest can still be read."""
    try:
        fields = json.loads((folder / "manifest.json").read_text())
        for name, stored in fields["files"].items():
            stored["crc32"] = checksum(folder / name)
        fields.pop("crc32", None)
        fields["crc32"] = manifests._checksum(fields)
        (folder / "manifest.json").write_text(json.dumps(fields))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass


def mutate(folder, rng):
    """Damage a store; return what was done, and whether the checksums hide it."""
    chosen = [rng.choice(MUTATIONS) for _ in range(rng.choice([1, 1, 1, 2]))]
    for mutation in chosen:
        if all(path.is_file() and path.stat().st_size for path in folder.iterdir()):
            with suppress(ValueError, SyntaxError, KeyError, TypeError, EOFError, AttributeError):
                mutation(folder, rng)  # a second one may find what the first left unreadable
    hidden = rng.random() < 0.4
    if hidden:
        sign(folder)
    return [mutation.__name__ for mutation in chosen] + ["signed"] * hidden, hidden


def refusal(call, folder):
    """Whether a store was refused, as is documented: one line that names its file."""
    try:
        call(folder)
    except store.StoreError as error:
        text = str(error)
        assert str(folder) in text, text
        assert "\n" not in text, text
        text.encode()  # can be printed
        return True
    return False


def same(one, other):
    return all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        for a, b in zip(one, other, strict=True)
    )


def mutations(seed, count):
    """Damage stores; they are refused or, if `verify` did not look, fitted to finite numbers."""
    ends = {"verify": 0, "open": 0, "fit": 0}
    with tempfile.TemporaryDirectory() as base:
        good = build_all(Path(base))
        expected = {path: fitted(path) for path in good}
        for number in range(count):
            rng = random.Random(f"{seed}/{number}")
            original = rng.choice(good)
            folder = Path(shutil.copytree(original, Path(base, "case", "bad")))
            done, hidden = mutate(folder, rng)
            print(f"case {number}: {original.name}, {', '.join(done)}", flush=True)
            in_doubt = refusal(store.verify, folder)
            ends["verify"] += in_doubt
            if not refusal(store.open, folder):
                found = []
                if refusal(lambda folder, found=found: found.extend(fitted(folder)), folder):
                    ends["fit"] += 1
                else:
                    numbers = [part for part in found if isinstance(part, np.ndarray)]
                    assert all(np.isfinite(part).all() for part in numbers)
                    assert in_doubt or hidden or same(found, expected[original])
            else:
                ends["open"] += 1
                assert in_doubt  # whatever `open` refuses
            shutil.rmtree(folder.parent)
    print(f"refused of {count}: {ends}")


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
    command = [sys.executable, "-W", "ignore", __file__, "racer", "0", "0"]
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


def killed_at(event, folder):
    """Have this process killed before its nth operation on the files of a folder."""
    left = [event]

    def hook(name, args):
        if name in EVENTS and any(folder in str(arg) for arg in args):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}
STEPS = 55  # of a build, about: some kills come too late


def kills(seed, count):
    """Kill builds at any moment: there is no store or a whole one, and the next build works."""
    # This process runs no kernel itself: its children start with no threads.
    R = entries(np.random.default_rng(0))
    whole = done = 0
    with tempfile.TemporaryDirectory() as base:
        target = Path(base, "store")

        def build(event=None):
            if event is not None:
                killed_at(event, base)
            store.build(R, target, budget=2000)

        begun = time.monotonic()
        os.waitpid(in_child(build), 0)
        usual = time.monotonic() - begun
        shutil.rmtree(target)
        for number in range(count):
            rng = random.Random(f"{seed}/{number}")
            event = rng.randrange(STEPS) if rng.random() < 0.7 else None
            child = in_child(lambda event=event: build(event))
            if event is None:
                time.sleep(usual * (0.3 + rng.random()))
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            done += os.WIFSIGNALED(status)
            print(f"case {number}: event {event}, status {status}", flush=True)
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
    task, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if task == "racer":
        racer()
    else:
        {"mutations": mutations, "races": races, "kills": kills}[task](seed, count)

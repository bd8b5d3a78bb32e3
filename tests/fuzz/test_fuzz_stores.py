"""Stores and input files with random damage are read or cause an error that names the file.

Cases follow from a seed, which is printed, and run in a process of their own, so that a crash is a
failed test. ``FASTEMF_FUZZ=20000 pytest -s -m slow tests/fuzz/test_fuzz_stores.py`` sets how many
mutations the long run does, and damaged sources in proportion.
"""

import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from mutations import places

import fastemf
from fastemf import store
from fastemf.sources.store import manifest as manifests
from fastemf.sources.store.files import checksum

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.skipif(sys.platform == "win32", reason="needs signals and locks of POSIX"),
]
ROOT = Path(__file__).parents[2]
MANY = int(os.environ.get("FASTEMF_FUZZ", "4000"))


def run(file, what, seed, count, seconds):
    """Run cases in another process, which must exit normally."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", file, what, str(seed), str(count)],
        cwd=ROOT, timeout=seconds, capture_output=True, text=True, errors="replace",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    told = f"{what}: seed {seed}, {count} cases\n{ended.stdout[-2000:]}\n{ended.stderr[-3000:]}"
    print(told)
    assert ended.returncode == 0, told


LONG = [pytest.mark.slow, pytest.mark.timeout(0)]


@pytest.mark.subprocess
@pytest.mark.parametrize(("seed", "count"), [(0, 80), pytest.param(1, MANY, marks=LONG)])
@pytest.mark.parametrize(("what", "share"), [("mutations", 1), ("sources", 4)])
def test_damage(what, share, seed, count):
    run(__file__, what, seed, max(100, count // share), None if seed else 600)


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
    more = {"v": values, "hour": rows}
    store.build(pa.table(table | more), paths[2], weights="v", columns=["hour"], **names)
    days = (np.datetime64("2026-11-17") + rows).astype("M8[ms]")
    dated = table | {"r": days, "c": cols.astype(np.uint64) + 2**63}
    store.build(pa.table(dated), paths[3], **names)
    for seed, path in enumerate(paths[:3:2]):
        shutil.copytree(path, folder / f"grown {path.name}")
        paths.append(folder / f"grown {path.name}")
        rows, cols, values = entries(np.random.default_rng(seed))
        if path.name == "plain":
            store.append(paths[-1], (rows + 1, cols, values))
            store.append(paths[-1], (rows, cols + 1, values))
        else:
            table = {"r": [f"é{i + 2}" for i in rows], "c": cols * 10 + 10, "b": values}
            store.append(paths[-1], pa.table(table | {"v": cols + 1.0, "hour": cols}))
    return paths


def fitted(path):
    """The result of a fit that reads block by block, the labels, and further columns."""
    settings = {"intercepts": True, "reg": 0.1, "max_iter": 3, "n_jobs": 1}
    opened = store.open(path, budget=200)
    fit = fastemf.complete(opened, 0.3, 2, **settings)
    hours = opened.read_columns().to_pydict() if opened.info["columns"] else None
    arrays = fit.X, fit.Y, fit.row_intercepts, fit.col_intercepts
    return *arrays, fit.row_labels, fit.col_labels, hours


# --- mutations -----------------------------------------------------------------------------------

TEXTS = ["", "f8", "int64", "uint64", "str", "datetime64[ns]", "float32", "float64", "\n",
         "\ud800", "<f4", "<f8", "<i8", "<u8", "|u1", "|O", "../x", "rows.mass.npy",
         "rows.positions.npy", "columns.parquet", "|V1", "hour", "x" * 5000]  # fmt: skip
NUMBERS = [0, 1, -1, 2, M, N, SIZE, M + 1, 2**31, 2**32, 2**63 - 1, 2**63, -(2**63), 10**300, 0.5,
           float("nan"), float("inf"), -0.0, 1e308]  # fmt: skip
OTHERS = [None, True, False, [], {}, [[]], [1, 2], {"kind": "str", "name": "r"}]
GARBAGE = [b"", b"\0", b"{", b"[" * 100_000, b'{"a":' * 30_000, b"9" * 9000, b"\xff\xfe{\0",
           b"null", b'"\xed\xa0\x80"', b"1e999", b"NaN"]  # fmt: skip
EXTREMES = [0, 1, -1, 2**31 - 1, -(2**31), 2**62, -(2**63), np.nan, np.inf, -np.inf, 1e300, 1e150,
            -1e-300, 1e-40, M, N, SIZE]  # fmt: skip


def files_of(folder):
    """All files of a store, or their replacements."""
    return sorted(path for path in folder.rglob("*") if not path.name.startswith("data-"))


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
    path = rng.choice(files_of(folder))
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 2, 8])):
        bits = rng.choice([1, 2, 0x40, 0x80, rng.randrange(1, 256)])
        content[rng.randrange(len(content))] ^= bits
    path.write_bytes(content)


def cut(folder, rng):
    path = rng.choice(files_of(folder))
    content = path.read_bytes()
    shorter = content[: rng.randrange(len(content))]
    more = rng.choice([b"\0", b"\0" * 8, content[-8:], content])
    path.write_bytes(shorter if rng.random() < 0.6 else content + more)


def swap(folder, rng):
    one, other = rng.sample(files_of(folder), 2)
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    if rng.random() < 0.5:
        other.write_bytes(contents[0])


def replace(folder, rng):
    path = rng.choice(files_of(folder))
    aside = path.rename(folder.with_name("aside"))
    links = [path, "nowhere", aside, "/dev/zero", "/dev/null", "/dev/full", "/proc/self/mem"]
    how = rng.randrange(7)
    if how < 4:
        path.symlink_to(rng.choice(links))  # the old file elsewhere is not a damage
    elif how == 4:
        os.mkfifo(path)
    elif how == 5:
        path.mkdir()


def edit_arrays(folder, rng):
    for _ in range(rng.choice([1, 1, 2, 4])):
        path = rng.choice(sorted(folder.rglob("*.npy")))
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
    """Update all checksums if the manifest can still be read."""
    if not (folder / "manifest.json").is_file():  # it may be a pipe or an endless device
        return
    try:
        fields = json.loads((folder / "manifest.json").read_text())
        for name, stored in fields["files"].items():
            path = folder / f"data-{fields['generation']}" / name
            stored["crc32"] = checksum(path)
            if stored["dtype"] == manifests.RAW:
                stored["length"] = path.stat().st_size
        fields.pop("crc32", None)
        fields["crc32"] = manifests._signed(fields)["crc32"]
        (folder / "manifest.json").write_text(json.dumps(fields))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass


def mutate(folder, rng):
    """Damage a store; return the mutations, and whether the checksums were updated."""
    chosen = [rng.choice(MUTATIONS) for _ in range(rng.choice([1, 1, 1, 2]))]
    for mutation in chosen:
        if all(path.is_file() and path.stat().st_size for path in files_of(folder)):
            with suppress(Exception):
                mutation(folder, rng)  # a second one may find what the first left unreadable
    hidden = rng.random() < 0.4
    if hidden:
        sign(folder)
    return [mutation.__name__ for mutation in chosen] + ["signed"] * hidden, hidden


def refusal(call, folder):
    """Return whether a store was refused with one line that names the file."""
    try:
        call(folder)
    except store.StoreError as error:
        text = str(error)
        assert str(folder) in text, text
        assert "\n" not in text, text
        text.encode()  # can be printed
        return True
    except ValueError as error:  # numbers that are there, and too large to be fitted
        if "too large for float" not in str(error):
            raise
        return True
    return False


def same(one, other):
    return all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        for a, b in zip(one, other, strict=True)
    )


def mutations(seed, count):
    """Damage stores; they are refused or, without `verify`, fitted with finite results."""
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
                assert refusal(lambda folder: store.append(folder, ([0], [0], [1.0])), folder)
            shutil.rmtree(folder.parent)
    print(f"refused of {count}: {ends}")


# --- sources -------------------------------------------------------------------------------------


def source_files(folder):
    """Files of one table: Parquet in several ways, CSV plain and compressed."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    rows, cols, values = entries(np.random.default_rng(0))
    table = pa.table({"r": [f"é{i}" for i in rows], "c": cols, "b": values})
    plain = {"compression": "none", "use_dictionary": False}
    parquet.write_table(table, folder / "packed.parquet", compression="snappy")
    parquet.write_table(table, folder / "plain.parquet", **plain)
    parquet.write_table(table, folder / "groups.parquet", compression="gzip", row_group_size=20)
    csv.write_csv(table, folder / "log.csv")
    with gzip.open(folder / "log.csv.gz", "wb") as file:
        file.write((folder / "log.csv").read_bytes())
    return sorted(folder.iterdir())


PIECES = [b"\0", b"\xff", b'"', b",", b"\n", b"\0" * 50, b"\xc3", b"x" * 9]


def sources(seed, count):
    """Build stores from damaged files: each is read or refused with one line that names it."""
    refused = 0
    with tempfile.TemporaryDirectory() as base:
        (Path(base) / "good").mkdir()
        good = source_files(Path(base) / "good")
        for number in range(count):
            rng = random.Random(f"{seed}/{number}")
            folder = Path(base, "case")
            folder.mkdir()
            path = Path(shutil.copy(rng.choice(good), folder))
            print(f"case {number}: {path.name}", flush=True)
            content = bytearray(path.read_bytes())
            for _ in range(rng.choice([1, 1, 2, 5])):
                at = rng.randrange(len(content))
                piece = rng.choice(PIECES)
                content[at : at + rng.choice([0, len(piece)])] = piece
            path.write_bytes(content[: rng.randrange(1, len(content))] if at % 5 == 0 else content)
            target = Path(base, "store")
            try:
                store.build(path, target, rows="r", cols="c", values="b", memory_limit=20_000)
                store.verify(target)
                shutil.rmtree(target)
            except (ValueError, TypeError, OSError) as error:
                refused += 1
                told = str(error)
                assert str(path) in told, told
                assert "\n" not in told, told
            assert sorted(os.listdir(base)) == ["case", "good"]
            shutil.rmtree(folder)
    print(f"refused of {count}: {refused}")


if __name__ == "__main__":
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))  # against huge allocations
    warnings.simplefilter("ignore")
    {"mutations": mutations, "sources": sources}[sys.argv[1]](*map(int, sys.argv[2:]))

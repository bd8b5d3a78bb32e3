"""``python -m bench.store --entries N --kills 150``: stores, from Parquet to a fit.

Measures time and peak memory, in separate processes, of builds from Parquet, of labelled lines and
of integer positions (with a tenth of the entries and with all); of reading labelled lines of CSV
into a fit; sweeps over the store and over the same data in memory, in turn, with a warm page cache;
and repeated appends of 1 %, followed by sweeps over the grown store. ``--kills`` kills builds and
appends at random moments and verifies after each that no observation is lost, as do the tests in
``tests/fuzz/test_fuzz_builds.py``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

from bench.child import ROOT, call
from bench.stream import Stream


def write_table(path: Path, entries: int, *, labelled: bool) -> None:
    """Write entries as CSV or Parquet, with strings as labels or with positions."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    stream = Stream(entries)
    sides = zip(("client", "service"), stream.shape, strict=True)
    labels = [pa.array([f"{name}-{at:07d}" for at in range(n)]) for name, n in sides if labelled]
    index = pa.string() if labelled else pa.int32()
    schema = pa.schema([("row", index), ("col", index), ("value", pa.float32())])
    writer = csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter
    with writer(path, schema) as file:
        for rows, cols, values in stream:
            codes = pa.array(rows), pa.array(cols)
            if labelled:
                codes = tuple(of.take(code) for of, code in zip(labels, codes, strict=True))
            file.write_table(pa.table([*codes, values], schema=schema))


def report_build(folder: Path, entries: int, memory: int, *, labelled: bool) -> tuple[Path, float]:
    kind = "labelled" if labelled else "integer"
    source, target = folder / f"{entries}.parquet", folder / f"{kind}-{entries}"
    write_table(source, entries, labelled=labelled)
    shape = () if labelled else Stream(entries).shape
    done = call("build_store", source, target, memory, *shape)
    source.unlink()
    print(
        f"build {entries / 1e6:g}M {kind} lines: {done['seconds']:.1f} s "
        f"({done['seconds'] / entries * 1e9:.0f} ns per line), peak {done['peak'] / 1e6:.0f} MB, "
        f"of which {done['level'] / 1e6:.0f} MB interpreter and libraries; memory_limit "
        f"{memory / 1e6:.0f} MB",
        flush=True,
    )
    return target, done["seconds"]


def report_csv(folder: Path, entries: int) -> None:
    source = folder / "labelled.csv"
    write_table(source, entries, labelled=True)
    done = call("fit_csv", source)
    source.unlink()
    print(
        f"CSV of {entries / 1e6:g}M labelled lines into a fit of one sweep: "
        f"{done['seconds']:.1f} s, of which {done['sweep']:.1f} s for the sweep; peak "
        f"{done['peak'] / 1e6:.0f} MB",
        flush=True,
    )


def report_kills(kills: int) -> None:
    """Kill builds and appends; raises an error if an observation is lost."""
    for task in ("kills", "append_kills"):
        script = ROOT / "tests" / "fuzz" / "test_fuzz_builds.py"
        command = [sys.executable, str(script), task, "1", str(kills)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        print(f"{ran.stdout.splitlines()[-1]}; nothing lost", flush=True)


def report_append(path: Path, entries: int, memory: int, times: int, built: float) -> None:
    """Append 1 % several times; `built` is the time of the build in seconds."""
    source = path.with_suffix(".parquet")
    write_table(source, entries // 100, labelled=False)
    seconds = call("append_store", source, path, times, memory)["seconds"]
    ratios = sorted(one / built for one in seconds)
    print(
        f"append {entries // 100 / 1e6:g}M entries, {times} times, as a fraction of the build: "
        f"first {seconds[0] / built:.3f} (loads the kernels), median {ratios[times // 2]:.3f}, "
        f"largest {ratios[-1]:.3f}, mean {sum(ratios) / times:.3f}",
        flush=True,
    )


def report_fit(path: Path, k: int, sweeps: int, repeats: int) -> None:
    import fastemf
    from fastemf.sources.memory import Observations

    stored = fastemf.store.open(path)
    sides = [fastemf.store.read_block(path, axis, 0, stored.shape[axis]) for axis in (0, 1)]
    memory = Observations(stored.shape, *sides)
    best: dict[str, float] = {}
    fits = {}
    for _ in range(repeats):
        for name, R in (("memory", memory), ("store", stored)):
            fits[name] = fastemf.complete(R, 0.1, k, max_iter=sweeps, tol=0)
            seconds = min(record.seconds for record in fits[name].history)
            best[name] = min(seconds, best.get(name, np.inf))
    same = np.array_equal(fits["memory"].X, fits["store"].X)
    verdict = "bitwise identical" if same else "BITS DIFFER"
    print(
        f"k = {k}: {best['memory']:.2f} s per sweep in memory, "
        f"{best['store']:.2f} s from the store, "
        f"ratio {best['store'] / best['memory']:.2f}; {verdict}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=float, default=1e7)
    parser.add_argument("--memory", type=float, default=1 << 30, help="bytes of memory")
    parser.add_argument("--ranks", type=int, nargs="*", default=[8, 32], help="ranks of the fits")
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--appends", type=int, default=20, help="number of appends, of 1 % each")
    parser.add_argument("--kills", type=int, default=0, help="number of killed builds and appends")
    parser.add_argument("--folder", help="folder with enough space (default: the temporary folder)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        entries = int(options.entries)
        memory = int(options.memory)
        report_build(Path(folder), entries, memory, labelled=True)
        for size in (entries // 10, entries):
            path, built = report_build(Path(folder), size, memory, labelled=False)
        report_csv(Path(folder), entries)
        for k in options.ranks:
            report_fit(path, k, options.sweeps, options.repeats)
        report_append(path, entries, memory, options.appends, built)
        for k in options.ranks:
            report_fit(path, k, options.sweeps, options.repeats)
    if options.kills:
        report_kills(options.kills)


if __name__ == "__main__":
    main()

"""``python -m bench.store --entries N``: build a store from Parquet, append to it, fit it.

Measures time and peak memory of the build in a separate process, with a tenth of the entries and
with all; sweeps over the store and over the same data in memory, in turn, with a warm page cache;
and repeated appends of 1 %, followed by sweeps over the grown store.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np

from bench.child import call
from bench.stream import Stream


def write_parquet(path: Path, entries: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([("row", pa.int32()), ("col", pa.int32()), ("value", pa.float32())])
    with parquet.ParquetWriter(path, schema) as writer:
        for columns in Stream(entries):
            writer.write_table(pa.table(list(columns), schema=schema))


def report_build(folder: Path, entries: int, memory: int) -> tuple[Path, float]:
    source, target = folder / f"{entries}.parquet", folder / f"store-{entries}"
    write_parquet(source, entries)
    m, n = Stream(entries).shape
    done = call("build_store", source, target, m, n, memory)
    source.unlink()
    print(
        f"build {entries / 1e6:g}M entries: {done['seconds']:.1f} s "
        f"({done['seconds'] / entries * 1e9:.0f} ns per entry), peak {done['peak'] / 1e6:.0f} MB, "
        f"of which {done['level'] / 1e6:.0f} MB interpreter and libraries",
        flush=True,
    )
    return target, done["seconds"]


def report_append(path: Path, entries: int, memory: int, times: int, built: float) -> None:
    """Append 1 % several times; `built` is the time of the build in seconds."""
    source = path.with_suffix(".parquet")
    write_parquet(source, entries // 100)
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
    parser.add_argument("--folder", help="folder with enough space (default: the temporary folder)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        entries = int(options.entries)
        for size in (entries // 10, entries):
            path, built = report_build(Path(folder), size, int(options.memory))
        for k in options.ranks:
            report_fit(path, k, options.sweeps, options.repeats)
        report_append(path, entries, int(options.memory), options.appends, built)
        for k in options.ranks:
            report_fit(path, k, options.sweeps, options.repeats)


if __name__ == "__main__":
    main()

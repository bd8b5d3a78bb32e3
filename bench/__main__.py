"""``python -m bench``: the speed of fastemf compared with other libraries and the hardware."""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.compare import compare
from bench.runner import HEADER, Row, Timing, describe, line, print_machine, row, warm_up
from bench.scale import FULL, QUICK, SMOKE, Scale
from bench.sections import SECTIONS
from bench.targets import find_targets, format_targets


def main(argv: list[str] | None = None) -> int:
    """Run, compare or plot; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small matrices, under two minutes")
    size.add_argument("--smoke", action="store_true", help="tiny matrices, to test that it runs")
    parser.add_argument(
        "--only", type=sections, default=list(SECTIONS), metavar="NAMES",
        help=f"sections to run, separated by commas: {', '.join(SECTIONS)}",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw the results")
    commands = parser.add_subparsers(dest="command")
    two = commands.add_parser("compare", help="compare two result files")
    two.add_argument("before", type=results_file)
    two.add_argument("after", type=results_file)
    drawing = commands.add_parser("plot", help="draw a result file")
    drawing.add_argument("results", type=results_file)
    drawing.add_argument("folder", type=Path)
    args = parser.parse_args(argv)
    if args.command == "compare":
        return show_comparison(args.before, args.after)
    # Fail before a long run rather than after it.
    folder = args.folder if args.command == "plot" else args.plots
    if folder is not None and find_spec("matplotlib") is None:
        parser.error("plots need matplotlib: pip install '.[bench]'")
    if args.out is not None and not args.out.absolute().parent.is_dir():
        parser.error(f"--out must be in a folder that exists, got {args.out}")
    if args.command == "plot":
        return plot(args.results, folder)

    scale = SMOKE if args.smoke else QUICK if args.quick else FULL
    results = measure(scale, args.only, args.out)
    show_targets(scale, results)
    if folder is not None:
        return plot(results, folder)
    if args.smoke and find_spec("matplotlib") is not None:
        with TemporaryDirectory() as scratch:
            return plot(results, Path(scratch))
    return 0


def sections(names: str) -> list[str]:
    """Parse names separated by commas; return them in the suite's order."""
    wanted = {name.strip() for name in names.split(",")}
    unknown = wanted - set(SECTIONS)
    if unknown:
        known = ", ".join(SECTIONS)
        raise argparse.ArgumentTypeError(f"must be among {known}, got {', '.join(unknown)!r}")
    return [name for name in SECTIONS if name in wanted]


def measure(scale: Scale, names: list[str], out: Path | None) -> list[Row]:
    """Run the sections and print their rows; write the file after each section."""
    about = print_machine()
    print(", ".join(f"{name} {version or 'absent'}" for name, version in about["versions"].items()))
    compiled = {dtype: warm_up(dtype, 4) for dtype in ("float64", "float32")}
    spent = ", ".join(f"{dtype} {seconds:.1f} s" for dtype, seconds in compiled.items())
    print(f"kernels compiled, or loaded from the cache: {spent}")
    results: list[Row] = []
    took: dict[str, float] = {}
    for name in names:
        print(f"\n{name}\n{HEADER}", flush=True)
        began = time.perf_counter()
        try:
            for result in SECTIONS[name](scale):
                results.append(result)
                print(line(result), flush=True)
        except Exception as error:  # the next sections may still run
            failed = row(name, "", "", 0, "", 0, 0, "", Timing(error=describe(error)))
            results.append(failed)
            print(line(failed))
        took[name] = time.perf_counter() - began
        if out:
            header = {"scale": scale.name, "machine": about, "compiled": compiled, "took": took}
            out.write_text(json.dumps({**header, "results": results}, indent=1))
    spent = ", ".join(f"{name} {seconds:.0f}" for name, seconds in took.items())
    print(f"\n{sum(took.values()):.0f} s in all: {spent}")
    return results


def show_targets(scale: Scale, results: list[Row]) -> None:
    """Print the targets that this run has data for."""
    targets = find_targets(results)
    if not targets:
        return
    print("\nTargets of the project" + ("" if scale is FULL else " (set for the full sizes)"))
    print("\n".join(format_targets(targets)))


def results_file(path: str) -> list[Row]:
    """Read the rows of a file written by `--out`."""
    try:
        rows: list[Row] = json.loads(Path(path).read_text())["results"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise argparse.ArgumentTypeError(
            f"must be a file written by --out, got {path} ({describe(error)})"
        ) from None
    return rows


def show_comparison(before: list[Row], after: list[Row]) -> int:
    """Print the comparison; return 1 if anything became slower, else 0."""
    rows = compare(before, after)
    for entry in rows:
        mark = "SLOWER" if entry["slower"] else ""
        setting = " ".join(map(str, entry["setting"]))
        print(
            f"{setting:<72} {entry['before']:.4f} → {entry['after']:.4f} s "
            f"×{entry['ratio']:.2f} {mark}".rstrip()
        )
    return int(any(entry["slower"] for entry in rows))


def plot(results: list[Row], folder: Path) -> int:
    """Draw the results and print the names of the files."""
    from bench.plots import draw

    for path in draw(results, folder):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

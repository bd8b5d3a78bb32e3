"""``python -m bench``: how fast is a sweep, against others and against the hardware?"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.compare import compare
from bench.competitors import COMPETITORS, Competitor
from bench.problems import PROBLEMS
from bench.runner import HEADER, machine, time_sweeps


def main(argv: list[str] | None = None) -> int:
    """Run or compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small matrix, under two minutes")
    parser.add_argument("--smoke", action="store_true", help="a tiny one: only that it runs")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    commands = parser.add_subparsers(dest="command")
    two = commands.add_parser("compare", help="compare two result files")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    args = parser.parse_args(argv)
    if args.command == "compare":
        return show_comparison(args.before, args.after)

    if args.smoke:
        problems, repeats = ["tiny"], 1
        settings = [("float64", 4, 1), ("float32", 4, 2)]
    elif args.quick:
        problems, repeats = ["small"], 2
        settings = [("float64", 10, 1), ("float64", 10, 2), ("float64", 32, 2), ("float32", 32, 2)]
    else:
        problems, repeats = ["skewed", "uniform", "web services", "planetlab"], 3
        settings = [(dtype, k, 1) for dtype in ("float64", "float32") for k in (10, 32, 64)]
        settings += [(dtype, k, 2) for dtype in ("float64", "float32") for k in (10, 32, 64)]

    about = machine()
    print(f"{about['cpu']}, {about['cores']} cores, Python {about['python']}")
    print(", ".join(f"{name} {version or 'absent'}" for name, version in about["versions"].items()))
    print(HEADER)
    results = []
    for name in problems:
        try:
            R = PROBLEMS[name]()
        except FileNotFoundError as error:
            print(f"{name:<12} skipped: {error}")
            continue
        results += time_sweeps(R, name, chosen(R.nnz), settings, repeats, print)
    if args.out:
        args.out.write_text(json.dumps({"machine": about, "results": results}, indent=1))
    return 0


def chosen(entries: int) -> list[Competitor]:
    """The NumPy loop takes minutes on millions of entries, and says nothing new there."""
    return [c for c in COMPETITORS if entries < 1_000_000 or c.name != "NumPy loop"]


def show_comparison(before: Path, after: Path) -> int:
    """Print the table; exit code 1 where something became slower."""
    rows = compare(*(json.loads(path.read_text())["results"] for path in (before, after)))
    for row in rows:
        mark = "SLOWER" if row["slower"] else ""
        setting = " ".join(map(str, row["setting"]))
        print(
            f"{setting:<60} {row['before']:.4f} → {row['after']:.4f} s ×{row['ratio']:.2f} {mark}"
        )
    return int(any(row["slower"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())

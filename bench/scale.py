"""The size of a run; the targets are set for `FULL`, the others exercise the same code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Sizes and repeats, chosen by their cost on two cores."""

    name: str
    problem: str  # for sweeps, quality, asymmetry, threads and growth in k
    others: tuple[str, ...]  # other problems, timed at one setting each
    dtypes: tuple[str, ...]
    ranks: tuple[int, ...]  # of sweeps
    rank: int  # of asymmetry, threads and set-up
    repeats: int
    quality_ranks: tuple[int, ...]
    quality_grid: tuple[int, ...]  # sweeps of the fits that make up a curve
    exact_up_to: int  # the largest rank at which cmfrec Cholesky takes part in time to quality
    asymmetry_sweeps: int
    growth_entries: tuple[int, ...]  # the last is also the size for set-up and memory
    growth_rank: int
    growth_ranks: tuple[int, ...]
    ranked: tuple[int, int]  # rows and columns of the matrix whose rows are ranked
    cold_compile: bool  # also time the first call with an empty kernel cache


FULL = Scale(
    name="full",
    problem="skewed",
    others=("uniform", "web services", "planetlab"),
    dtypes=("float64", "float32"),
    ranks=(10, 32, 64),
    rank=32,
    repeats=3,
    quality_ranks=(32, 64),
    quality_grid=(4, 8, 16, 32),
    exact_up_to=32,
    asymmetry_sweeps=8,
    growth_entries=(1_000_000, 5_000_000, 20_000_000, 50_000_000),
    growth_rank=16,
    growth_ranks=(8, 16, 32, 64, 128),
    ranked=(100_000, 10_000),
    cold_compile=True,
)

QUICK = Scale(
    name="quick",
    problem="small",
    others=("web services",),
    dtypes=("float64", "float32"),
    ranks=(10, 32),
    rank=32,
    repeats=2,
    quality_ranks=(32,),
    quality_grid=(4, 8, 16, 32),
    exact_up_to=32,
    asymmetry_sweeps=6,
    growth_entries=(100_000, 300_000, 1_000_000),
    growth_rank=16,
    growth_ranks=(8, 16, 32, 64),
    ranked=(10_000, 2_000),
    cold_compile=True,
)

SMOKE = Scale(
    name="smoke",
    problem="tiny",
    others=(),
    dtypes=("float64",),
    ranks=(3,),
    rank=3,
    repeats=1,
    quality_ranks=(3,),
    quality_grid=(1, 3, 40),
    exact_up_to=3,
    asymmetry_sweeps=3,
    growth_entries=(300, 600),
    growth_rank=2,
    growth_ranks=(1, 2),
    ranked=(60, 40),
    cold_compile=False,
)

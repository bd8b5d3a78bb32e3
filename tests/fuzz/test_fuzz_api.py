"""Every public task with random data and settings: a clear refusal, or a result that holds up.

A case follows from one seed, which a failure names: ``FASTEMF_FUZZ_SEED=7 pytest
tests/fuzz/test_fuzz_api.py`` runs that case alone. ``FASTEMF_FUZZ`` is how many cases the long
run takes.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from api_tasks import run

SHORT = 60
LONG = int(os.environ.get("FASTEMF_FUZZ", "5000"))
FIRST_LONG = 10_000  # other seeds than those of the short run
SEED = os.environ.get("FASTEMF_FUZZ_SEED")


def try_all(seeds, folder):
    """Run the cases; name every seed that fails, not only the first."""
    outcomes, failures = Counter(), []
    for seed in seeds:
        try:
            outcomes[run(seed, folder)] += 1
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            failures.append(f"seed {seed}: {type(error).__name__}: {reason}")
            print(failures[-1], flush=True)
    print(f"{len(seeds)} cases from seed {seeds[0]}: {dict(sorted(outcomes.items()))}")
    assert not failures, f"{len(failures)} of {len(seeds)} cases fail:\n" + "\n".join(failures)


@pytest.mark.compiled
@pytest.mark.skipif(SEED is None, reason="FASTEMF_FUZZ_SEED names no case")
def test_one_case(tmp_path):
    run(int(SEED), tmp_path)


@pytest.mark.compiled
@pytest.mark.skipif(SEED is not None, reason="FASTEMF_FUZZ_SEED asks for one case")
def test_some_cases(tmp_path):
    try_all(range(SHORT), tmp_path)


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.skipif(SEED is not None, reason="FASTEMF_FUZZ_SEED asks for one case")
def test_many_cases(tmp_path):
    try_all(range(FIRST_LONG, FIRST_LONG + LONG), tmp_path)

"""Every public task with random data and settings: a clear error, or a correct result.

A case follows from one seed, which a failure reports: ``FASTEMF_FUZZ_SEED=7 pytest
tests/fuzz/test_fuzz_api.py`` runs that case only. ``FASTEMF_FUZZ`` is the number of cases of the
slow test.
"""

import os
from collections import Counter

import pytest
from api_tasks import run

SEED = os.environ.get("FASTEMF_FUZZ_SEED")
FEW = range(40) if SEED is None else range(int(SEED), int(SEED) + 1)
MANY = range(10_000, 10_000 + int(os.environ.get("FASTEMF_FUZZ", "5000")))


@pytest.mark.compiled
@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=len)
def test_every_case_is_refused_clearly_or_correct(seeds, tmp_path):
    outcomes, failures = Counter(), []
    for seed in seeds:
        try:
            outcomes[run(seed, tmp_path)] += 1
        except Exception as error:
            if len(seeds) == 1:
                raise
            reason = " ".join(str(error).split())[:300]
            failures.append(f"seed {seed}: {type(error).__name__}: {reason}")
            print(failures[-1], flush=True)
    print(f"{len(seeds)} cases from seed {seeds[0]}: {dict(sorted(outcomes.items()))}")
    assert not failures, f"{len(failures)} of {len(seeds)} cases fail:\n" + "\n".join(failures)

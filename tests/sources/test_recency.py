"""The latest tenth of the observations, and weights that decrease with age."""

from dataclasses import replace

import numpy as np
import pytest
from scenes import refuses

from fastemf.features.times import Times
from fastemf.sources.memory import observe
from fastemf.sources.recency import latest_from, of_known_items, weigh_by_age

RNG = np.random.default_rng(0)
I, J = np.divmod(RNG.permutation(60), 10)
T = RNG.uniform(0, 50, 60)


def timed(values=T, weights=None, dtype=np.float64):
    """Observations whose values are their times."""
    observed = observe((I, J, values.astype(dtype)), weights=weights)
    order = observe((I, J, np.arange(60.0))).by_row.values.astype(int)
    return replace(observed, times=Times(T[order], is_date=False, name=""))


def test_the_latest_tenth_of_distinct_times():
    times = RNG.permutation(np.arange(200.0))
    start = latest_from(times)
    assert start == np.sort(times)[-20]


@pytest.mark.parametrize(
    ("times", "start"),
    [
        (np.repeat([0, 1, 2, 3], 25), 3),  # days: the last one, although it is a quarter
        (np.repeat([0, 1, 2, 3], [80, 9, 8, 3]), 2),  # 11 % are closer to a tenth than 3 %
        (np.repeat([0, 1], [50, 50]), 1),
    ],
)
def test_ties_stay_together(times, start):
    assert latest_from(RNG.permutation(times).astype(float)) == start


def test_a_latest_part_is_needed():
    with refuses(ValueError, "time must tell the latest tenth", "60 of 100", "latest time, 1"):
        latest_from(np.repeat([0.0, 1.0], [40, 60]))
    with refuses(ValueError, "time must tell the latest tenth", "9 of 9"):
        latest_from(np.zeros(9))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_halve_with_age(dtype):
    given = RNG.uniform(1, 2, 60)
    for weights, own in ((None, np.ones(60)), (given, given)):
        weighted = weigh_by_age(timed(T, weights, dtype), 5.0)
        expected = dict(zip(T.astype(dtype), own * 0.5 ** ((T.max() - T) / 5), strict=True))
        for side in (weighted.by_row, weighted.by_col):
            # Values are times, so they identify the observation on both sides.
            wanted = [expected[value] for value in side.values]
            np.testing.assert_allclose(side.weights, wanted, rtol=1e-6)
            assert side.weights.dtype == dtype
            sums = np.bincount(side.keys, side.weights)
            np.testing.assert_allclose(side.mass, sums, rtol=1e-6)


def test_old_observations_keep_some_weight():
    weighted = weigh_by_age(timed(dtype=np.float32), 1e-300)
    assert weighted.by_row.weights.min() == 2.0**-30
    assert np.sort(weighted.by_row.weights)[-2:].tolist() == [2.0**-30, 1.0]


def test_an_infinite_half_life_changes_nothing():
    observed = timed()
    assert weigh_by_age(observed, np.inf) is observed


def test_known_items():
    observed = observe(([0, 0, 1, 2, 2], [0, 1, 1, 1, 0], np.arange(5.0)))
    earlier = observed.subset(np.array([True, False, True, False, False]))
    # Row 2 has no earlier observation; column 1 has one in row 1.
    assert of_known_items(observed, earlier).tolist() == [True, True, True, False, False]

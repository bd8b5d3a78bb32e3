"""Histograms of Prometheus and OpenTelemetry as intervals."""

from __future__ import annotations

import numpy as np
import pytest

import fastemf

pa = pytest.importorskip("pyarrow")

NAMES = {"rows": "client", "cols": "service"}


def scrape(counts=(1, 3, 3, 0, 4, 9), le=("0.1", "1", "+Inf")):
    """Histograms of two pairs."""
    return pa.table({
        "client": ["a"] * 3 + ["b"] * 3, "service": ["s"] * 6, "le": [*le, *le],
        "count": list(counts),
    })  # fmt: skip


def lines(table):
    return [tuple(line.values()) for line in table.to_pylist()]


EXPECTED = [
    ("a", "s", 0.0, 0.1, 1.0), ("a", "s", 0.1, 1.0, 2.0), ("b", "s", 0.1, 1.0, 4.0),
    ("b", "s", 1.0, np.inf, 5.0),
]  # fmt: skip


def test_cumulative_counts_become_intervals():
    found = fastemf.histograms(scrape(), **NAMES)
    assert found.column_names == ["client", "service", "lower", "upper", "count"]
    assert lines(found) == EXPECTED


def test_counts_of_values_are_those_of_numpy():
    rng = np.random.default_rng(0)
    bounds, pairs = np.array([0.1, 0.5, 1.0, 2.0, np.inf]), [(i, j) for i in "ab" for j in "st"]
    values = {pair: rng.gamma(2, 0.5, 50) for pair in pairs}
    columns = [
        (*pair, le, int((times <= le).sum())) for pair, times in values.items() for le in bounds
    ]
    # Lines of several histograms may alternate, as long as the bounds of each increase.
    columns.sort(key=lambda line: line[2])
    table = pa.table(
        dict(zip(("client", "service", "le", "n"), zip(*columns, strict=True), strict=True))
    )
    found = fastemf.histograms(table, **NAMES, counts="n").to_pylist()
    for pair, times in values.items():
        expected, _ = np.histogram(times, np.append(0, bounds))
        own = {line["upper"]: line["count"] for line in found
               if (line["client"], line["service"]) == pair}  # fmt: skip
        assert own == {le: n for le, n in zip(bounds, expected, strict=True) if n}


def test_all_forms_of_a_table_are_equivalent(tmp_path):
    pd, pl, csv = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow.csv"))
    table = scrape()
    csv.write_csv(table, tmp_path / "scrape.csv")
    as_numbers = table.set_column(2, "le", pa.array([0.1, 1.0, np.inf] * 2))
    csv.write_csv(as_numbers, tmp_path / "numbers.csv")
    forms = [
        table.to_pandas(), pl.from_arrow(table), as_numbers, table.to_reader(),
        pd.DataFrame(table.to_pydict()), tmp_path / "scrape.csv", tmp_path / "numbers.csv",
    ]  # fmt: skip
    for form in forms:
        assert lines(fastemf.histograms(form, **NAMES)) == EXPECTED


def test_counts_of_single_buckets():
    found = fastemf.histograms(scrape((1, 2, 0, 0, 4, 5)), **NAMES, cumulative=False)
    assert lines(found) == EXPECTED


def test_the_first_bucket_of_bounds_that_are_not_positive_has_no_lower_end():
    found = fastemf.histograms(scrape(le=("-1", "0", "+Inf")), **NAMES)
    assert found["lower"].to_pylist() == [-np.inf, -1.0, -1.0, 0.0]


def test_difference_of_two_scrapes():
    later = scrape((2, 5, 6, 0, 4, 9))  # b has no new calls
    found = fastemf.histograms(later, **NAMES, before=scrape())
    assert lines(found) == [
        ("a", "s", 0.0, 0.1, 1.0), ("a", "s", 0.1, 1.0, 1.0), ("a", "s", 1.0, np.inf, 1.0)
    ]  # fmt: skip
    # A histogram that was reset, and one that is new, count from 0; one that is gone is ignored.
    reset = fastemf.histograms(scrape(), **NAMES, before=scrape((5, 5, 5, 0, 4, 9)))
    assert lines(reset) == EXPECTED[:2]
    new = fastemf.histograms(scrape(), **NAMES, before=scrape().slice(3))
    assert lines(new) == EXPECTED[:2]
    gone = fastemf.histograms(scrape().slice(3), **NAMES, before=scrape((1, 3, 3, 0, 3, 3)))
    assert lines(gone) == [("b", "s", 0.1, 1.0, 1.0), ("b", "s", 1.0, np.inf, 5.0)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (scrape((1, 3, 3, 4, 0, 9)), "got 0 after 4 at row 'b', column 's', bucket 1; pass cum"),
        (scrape(le=("1", "0.1", "+Inf")), "got 0.1 after 1 at row 'a', column 's', bucket 0.1"),
        (scrape(le=("1", "1", "+Inf")), "must not overlap, got 1 after 1 at row 'a'"),
        (scrape(le=("1", "2", "3")), "must be .Inf, .* got row 'a', column 's', bucket 3"),
        (scrape((-1, 3, 3, 0, 4, 9)), "at least 0, got -1 at row 'a', column 's', bucket 0.1"),
        (scrape((1, 3, np.inf, 0, 4, 9)), "finite .* got inf at row 'a', column 's', bucket inf"),
        (scrape((1, 3, None, 0, 4, 9)), "finite .* got nan at row 'a', column 's', bucket inf"),
        (scrape(le=("1", None, "+Inf")), "column 'le' must hold a bound .* none at row 1"),
        (scrape((0,) * 6), "a positive count, got none"),
        (scrape().slice(0, 0), "at least one bucket, got none"),
        (scrape().rename_columns(["client", "service", "bound", "count"]), "no column 'le'"),
    ],
)
def test_damaged_histograms_are_refused(table, message):
    with pytest.raises(ValueError, match=message):
        fastemf.histograms(table, **NAMES)


def test_other_errors():
    with pytest.raises(TypeError, match="column 'le' must hold numbers, got 'x' at row 1"):
        fastemf.histograms(scrape(le=("1", "x", "+Inf")), **NAMES)
    with pytest.raises(ValueError, match="must not be named lower, upper, count, got 'client'"):
        fastemf.histograms(scrape(), rows="client", cols="count")
    for before in (scrape(le=("0.1", "2", "+Inf")), scrape().slice(1)):
        with pytest.raises(ValueError, match=r"before must have the same buckets .* row 'a'"):
            fastemf.histograms(scrape(), **NAMES, before=before)
    # No count has decreased, but more calls took at most 0.1 s than at most 1 s.
    with pytest.raises(ValueError, match="got 0 after 4 at row 'a', column 's', bucket 1"):
        fastemf.histograms(scrape((5, 5, 5, 0, 4, 9)), **NAMES, before=scrape((1, 5, 5, 0, 4, 9)))

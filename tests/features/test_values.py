"""Every kind of column, of every library, becomes the same numbers."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fastemf.features.schema import MOST_CATEGORIES, FeatureSchema, FeatureTable
from fastemf.features.values import CATEGORY, DATE, NUMBER, ZONED_DATE, read_values
from fastemf.inputs.text_types import types_of_text

UTC = datetime.UTC
CET = datetime.timezone(datetime.timedelta(hours=1))
NOON = datetime.datetime(2024, 2, 29, 12, 0, 0, 250_000)
SECONDS = 1_709_208_000.25


def encoded(column):
    values = read_values(column, "feature 'x'")
    table = FeatureTable.fit({"x": values}, values.numbers.size)
    return values.kind, table.values.ravel().tolist()


def forms(items):
    """Yield one column in the forms of the libraries."""
    yield items
    yield np.array(items, object)
    yield pd.Series(items, dtype=object)
    yield pd.Series(items)
    yield pl.Series(items, strict=False)
    yield pa.array(items, from_pandas=True)
    array = pa.array(items, from_pandas=True)
    yield pa.chunked_array([array[:1], array[1:]])


COLUMNS = {
    "integers": ([3, None, -2], NUMBER, [3.0, None, -2.0]),
    "large integers": ([2**62, None, 5], NUMBER, [float(2**62), None, 5.0]),
    "floats": ([0.5, None, -2.25], NUMBER, [0.5, None, -2.25]),
    "booleans": ([True, None, False], NUMBER, [1.0, None, 0.0]),
    "decimals": ([Decimal("0.50"), None, Decimal("-2.00")], NUMBER, [0.5, None, -2.0]),
    "strings": (["us", None, "eu", "us"], CATEGORY, [1.0, None, 0.0, 1.0]),
    "dates": ([datetime.date(1970, 1, 2), None], DATE, [86400.0, None]),
    "times": ([NOON, None], DATE, [SECONDS, None]),
    "times in UTC": ([NOON.replace(tzinfo=UTC), None], ZONED_DATE, [SECONDS, None]),
    "times in CET": ([NOON.replace(tzinfo=CET), None], ZONED_DATE, [SECONDS - 3600, None]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_kinds_of_columns(name):
    items, kind, wanted = COLUMNS[name]
    for column in forms(items):
        found, numbers = encoded(column)
        assert found == kind, type(column)
        assert [None if np.isnan(x) else x for x in numbers] == wanted, type(column)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["us", None, "eu"], dtype="category"),
        pd.Series(pd.Categorical(["us", None, "eu"], categories=["zz", "us", "eu"])),
        pl.Series(["us", None, "eu"], dtype=pl.Categorical),
        pl.Series(["us", None, "eu"], dtype=pl.Enum(["us", "mars", "eu"])),
        pa.array(["us", None, "eu"]).dictionary_encode(),
        pa.chunked_array([["us"], [None, "eu"]]).dictionary_encode(),
        pa.array(["us", None, "eu"], pa.string_view()),
        pa.DictionaryArray.from_arrays([1, 0, 2], ["zz", "us", "eu"]).take([0, None, 2]),
        np.array(["us", None, "eu"], object),
    ],
)
def test_categories_are_sorted_and_those_that_do_not_occur_are_dropped(column):
    values = read_values(column, "x")
    schema = FeatureSchema.fit({"x": values})
    assert schema.categories == (("eu", "us"),)
    assert schema.categorical == [0]
    np.testing.assert_array_equal(schema.encode({"x": values}, 3).ravel(), [1, np.nan, 0])


def test_categories_may_be_integers():
    column = pd.Series([10, 9, 10, None], dtype="Int64").astype("category")
    assert FeatureSchema.fit({"x": read_values(column, "x")}).categories == (("10", "9"),)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_time_is_the_same_in_all_units(unit):
    times = np.array(["2024-02-29T12:00:07", "1960-01-01", "NaT"], f"M8[{unit}]")
    wanted = [1_709_208_007.0, -315_619_200.0, np.nan]
    for column in (times, pa.array(times), pd.Series(times), pl.Series(times.astype("M8[us]"))):
        np.testing.assert_array_equal(encoded(column)[1], wanted)
    precise = np.array(["2024-02-29T12:00:07.123456"], "M8[us]")
    assert encoded(precise) == encoded(precise.astype("M8[ns]"))


def test_numpy_arrays_and_scalars():
    for dtype in ("i1", "u8", "f2", "f4", "f8", "?", "g"):
        assert encoded(np.array([0, 1], dtype))[1] == [0.0, 1.0]
    assert encoded(np.array(["b", "a"]))[1] == [1.0, 0.0]
    assert encoded(np.array(["1970-01", "1970-02"], "M8[M]"))[1] == [0.0, 31 * 86400.0]
    masked = np.ma.MaskedArray([1.0, 2.0], mask=[True, False])
    np.testing.assert_array_equal(encoded(masked)[1], [np.nan, 2.0])
    assert read_values(20, "x").shape == ()
    assert read_values("eu", "x").categories == ["eu"]
    assert read_values([[1, 2], [3, 4]], "x").shape == (2, 2)
    assert read_values([True, 2, 0.5, Decimal(1)], "x").numbers.tolist() == [1, 2, 0.5, 1]


@pytest.mark.parametrize(
    "column",
    [[None, None], pd.Series([None, None], dtype=str), pa.nulls(2), pl.Series([None, None]),
     pa.array([None, None], pa.date32()), [pd.NaT, pd.NA], [np.nan, None], np.full(2, np.nan)],

)  # fmt: skip
def test_a_column_that_is_missing_entirely_is_a_number(column):
    values = read_values(column, "x")
    assert values.kind is None
    schema = FeatureSchema.fit({"x": values})
    assert schema.kinds == (NUMBER,)
    for fitted in (["eu", "us"], [1, 2], [NOON, NOON]):  # and fits any other kind
        other = FeatureSchema.fit({"x": read_values(fitted, "x")})
        assert np.isnan(other.encode({"x": values}, 2)).all()


def test_unseen_categories_and_absent_features_are_missing():
    schema = FeatureSchema.fit(
        {"region": read_values(["us", "eu"], "region"), "age": read_values([1, 2], "age")}
    )
    found = schema.encode({"region": read_values(["mars", "us", None], "region")}, 3)
    np.testing.assert_array_equal(found, [[np.nan, np.nan], [1, np.nan], [np.nan, np.nan]])


@pytest.mark.parametrize(
    ("fitted", "given", "wanted"),
    [
        ([NOON], [NOON.replace(tzinfo=UTC)], ".*without a time zone.*got dates with a time zone"),
        ([NOON.replace(tzinfo=UTC)], [NOON], ".*with a time zone.*got dates without a time zone"),
        ([NOON], [SECONDS], "must hold dates without a time zone, .*, got numbers"),
        ([NOON], ["2024-02-29"], "must hold dates.*, got strings"),
        ([1], ["1"], "must hold numbers, as in the fit, got strings"),
        (["1"], [1], "must hold strings or categories, as in the fit, got numbers"),
    ],
)
def test_kinds_must_be_those_of_the_fit(fitted, given, wanted):
    schema = FeatureSchema.fit({"x": read_values(fitted, "x")})
    with pytest.raises(TypeError, match=f"feature 'x' {wanted}"):
        schema.encode({"x": read_values(given, "x")}, 1)


@pytest.mark.parametrize(
    "column",
    [[1.0, None, -np.inf], np.array([1, 2, np.inf]), pa.array([1.0, None, np.inf]),
     pl.Series([1.0, None, np.inf]), pd.Series([1.0, None, np.inf]), [1, 2, 10**400],
     [1, 2, Decimal("inf")]],

)  # fmt: skip
def test_infinite_numbers_are_refused(column):
    with pytest.raises(ValueError, match=r"feature 'x' must be finite.*got -?inf at position 2"):
        read_values(column, "feature 'x'")


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array([[1], [2]]), "list<"),
        (pa.array([{"a": 1}]), "struct<"),
        (pa.array([b"x"]), "binary"),
        (pa.array([datetime.timedelta(1)]), "duration"),
        (pa.array([datetime.time(1)]), "time64"),
        (pa.array([0.5]).dictionary_encode(), "categories, got type double"),
        (pl.Series([[1]]), "list<"),
        (np.zeros(2, "m8[s]"), "timedelta64"),
        (np.zeros(2, complex), "complex128"),
        (np.zeros(2, "M8"), "datetime64"),
        (np.array([b"x"]), "S1"),
        ([1.0, "x"], "all of one kind, got 'x' .str. at position 1"),
        ([None, "x", NOON], "all of one kind, got datetime.* at position 2"),
        ([None, {}], r"got \{\} .dict. at position 1"),
        ([np.timedelta64(3)], "timedelta64"),
        (pd.Series([1, "x"]), "all of one kind, got 'x' .str. at position 1"),
        ([NOON, NOON.replace(tzinfo=UTC)], "time zone"),
    ],
)
def test_other_types_are_refused_by_name(column, wanted):
    with pytest.raises(TypeError, match=f"feature 'x' must.*{wanted}"):
        read_values(column, "feature 'x'")


def test_too_many_categories_and_features():
    values = read_values([str(one) for one in range(MOST_CATEGORIES + 1)], "x")
    with pytest.raises(ValueError, match="'x' must have at most 65,535 categories, got 65,536"):
        FeatureSchema.fit({"x": values})
    with pytest.raises(ValueError, match="at most 1,000, got 1,001"):
        FeatureSchema.fit({str(at): read_values([1], "x") for at in range(1001)})
    with pytest.raises(ValueError, match="must be Unicode text"):
        FeatureSchema.fit({"x": read_values(["a\ud800"], "x")})


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["1", "-2.5e3", None, "nan"], pa.float64()),
        (["1", "", "NA"], pa.float64()),
        (["True", "false", None], pa.bool_()),
        (["2024-02-29", "2024-02-29 12:00:00.25"], pa.timestamp("us")),
        (["2024-02-29T12:00:00.123456789"], pa.timestamp("ns")),
        (["2024-02-29T12:00:00Z", "2024-02-29 13:00:00+01:00"], pa.timestamp("us", "UTC")),
        (["2024-02-29T12:00:00Z", "2024-02-29"], pa.string()),
        (["007", "12"], pa.string()),
        (["0", "0.5", "-0.5"], pa.float64()),
        (["1", "x"], pa.string()),
        (["1_000"], pa.string()),
        (["yes", "NA"], pa.string()),
        ([None, None], pa.float64()),
    ],
)
def test_types_of_text(texts, wanted):
    found = types_of_text(pa.chunked_array([pa.array(texts, pa.string())] * 2))
    assert found.type == wanted
    assert len(found) == 2 * len(texts)
    if wanted == pa.string():
        assert found.to_pylist() == 2 * texts
    assert types_of_text(pa.chunked_array([], pa.string())).to_pylist() == []

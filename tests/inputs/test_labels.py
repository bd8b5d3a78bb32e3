"""Labels: encoding and lookup are inverse for all forms of columns."""

import datetime
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastemf import Labels

TEXTS = st.text(max_size=4)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
LARGE = st.integers(0, 2**64 - 1)
TIMES = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2250, 1, 1))
DATES = st.dates()
COLUMNS = st.one_of(
    st.lists(kind, min_size=1, max_size=12) for kind in (TEXTS, INTEGERS, LARGE, TIMES, DATES)
)


def arrow_type(items):
    if isinstance(items[0], int):
        return pa.uint64() if max(items) >= 2**63 else pa.int64()
    return pa.array(items[:1]).type  # string, timestamp[us] or date32


def forms(items):
    """One column in all forms."""
    kind = arrow_type(items)
    arrow = pa.array(items, kind)
    cut = len(items) // 2
    yield items
    yield tuple(items)
    yield arrow
    yield pa.chunked_array([arrow[:cut], arrow[cut:]])
    yield arrow.dictionary_encode()
    yield pa.chunked_array([arrow[:cut].dictionary_encode(), arrow[cut:].dictionary_encode()])
    yield pl.Series(items, dtype=None if kind != pa.uint64() else pl.UInt64)
    if kind in (pa.string(), pa.int64(), pa.uint64()):
        yield pd.Series(items, dtype=object if kind == pa.string() else kind.to_pandas_dtype())
        yield pd.Series(items, dtype="category")
    if kind == pa.string():
        yield pd.Series(items, dtype="str")
        yield arrow.cast(pa.large_string())
        yield pl.Series(items, dtype=pl.Categorical)
    else:
        yield arrow.to_numpy(zero_copy_only=False)


@given(COLUMNS)
def test_all_forms_encode_equally(items):
    expected = list(dict.fromkeys(items))
    for column in forms(items):
        labels, codes = Labels.encode(column, "client")
        assert labels.values.tolist() == expected
        assert [expected[code] for code in codes] == items
        assert labels.name == "client"
        assert labels.positions(column).tolist() == codes.tolist()
        assert labels.take(codes).tolist() == items


@given(COLUMNS, st.data())
def test_all_forms_are_looked_up_equally(items, data):
    known = list(dict.fromkeys(items))
    labels = Labels(known)
    asked = data.draw(st.permutations(items))
    absent = data.draw(st.sampled_from(items))
    labels_without = Labels([x for x in known if x != absent] or [data.draw(other_than(absent))])
    for column in forms(asked):
        assert labels.positions(column).tolist() == [known.index(x) for x in asked]
        found = labels_without.positions(column)
        assert [at == -1 for at in found] == [x == absent for x in asked]


def other_than(item):
    kinds = {str: TEXTS, int: INTEGERS, datetime.datetime: TIMES, datetime.date: DATES}
    return kinds[type(item)].filter(lambda x: x != item)


def test_extreme_integers_stay_distinct():
    labels = Labels([0, 2**64 - 1, 2**63])
    assert labels.kind == "uint64"
    # Seen as unsigned, -1 would be 2**64 - 1; as floats, 2**63 and its neighbours are one.
    asked = np.array([-1, 0, 2**63 - 1], np.int64)
    assert labels.positions(asked).tolist() == [-1, 0, -1]
    assert labels.positions(pa.array(asked)).tolist() == [-1, 0, -1]
    signed = Labels([-1, -(2**63), 2**63 - 1])
    assert signed.kind == "int64"
    assert signed.positions(np.array([2**64 - 1, 2**63], np.uint64)).tolist() == [-1, -1]
    assert signed.positions(np.array([2**63 - 1], np.uint64)).tolist() == [2]


def test_dates_are_compared_as_points_in_time():
    days = Labels(np.array(["2024-02-29", "2024-03-01"], "datetime64[D]"))
    hours = np.array(["2024-03-01T00", "2024-03-01T01"], "datetime64[h]")
    assert days.positions(hours).tolist() == [1, -1]
    stamps = Labels(hours)
    assert stamps.kind == "datetime64[s]"
    assert stamps.positions(np.array(["2024-03-01"], "datetime64[D]")).tolist() == [0]
    # 2093-10-09T01:29:47.000020992 is what this year wraps around to in nanoseconds.
    near = Labels(np.array(["2093-10-09T01:29:47.000020992"], "datetime64[ns]"))
    assert near.positions(np.array([300000], "datetime64[Y]")).tolist() == [-1]


def test_time_zones_are_converted_to_utc():
    berlin = pd.Series(pd.to_datetime(["2024-07-01 02:00"])).dt.tz_localize("Europe/Berlin")
    labels, _ = Labels.encode(berlin)
    assert labels.kind == "datetime64[us, UTC]"
    aware = datetime.datetime(2024, 7, 1, tzinfo=datetime.UTC)
    assert labels.positions([aware, aware + datetime.timedelta(hours=2)]).tolist() == [0, -1]
    assert labels.positions(aware).tolist() == 0
    assert Labels([aware]) == labels
    naive = aware.replace(tzinfo=None)
    for ours, theirs in ((labels, naive), (Labels([naive]), aware)):
        with pytest.raises(TypeError, match=r"must be dates with.* a time zone, as the labels are"):
            ours.positions(theirs)
    with pytest.raises(TypeError, match=r"must all have a time zone, or none.*position 1"):
        Labels([naive, aware])


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        ([1.5, 2.0], TypeError, "got float"),
        (np.array([1.0]), TypeError, r"float64, such as .*1\.0\) at position 0; convert whole"),
        (pa.array([1.0]), TypeError, r"double, such as 1\.0 at position 0; convert whole numbers"),
        ([True], TypeError, "got bool"),
        (np.array([True]), TypeError, "got dtype bool"),
        (pa.array([True]), TypeError, "got type bool"),
        (pa.array([b"x"]), TypeError, "got type binary"),
        (pa.array([1.5]).dictionary_encode(), TypeError, "got type double"),
        (["a", 1], TypeError, "all of one type, got int, str"),
        (pd.Series(["a", 1], dtype=object), TypeError, "one type"),
        (["a", None, None], ValueError, "2 nulls, first at position 1"),
        ([np.nan, "a"], ValueError, "1 null, first at position 0"),
        (pd.Series(["a", None]), ValueError, "1 null, first at position 1"),
        (pd.Series([1, None], dtype="Int64"), ValueError, "1 null, first at position 1"),
        (pd.Series(pd.Categorical(["a", None])), ValueError, "1 null, first at position 1"),
        (pl.Series(["a", "b", None]), ValueError, "1 null, first at position 2"),
        (np.array(["2024", "NaT"], "datetime64[D]"), ValueError, "1 null, first at position 1"),
        ([2**64], ValueError, "64-bit"),
        ([-1, 2**63], ValueError, "64-bit"),
        (["\ud800"], ValueError, "Unicode"),
        (np.array([1], "datetime64[ps]"), TypeError, "datetime64"),
    ],
)
def test_invalid_labels_are_refused(column, error, message):
    with pytest.raises(error, match=message) as caught:
        Labels.encode(column, what="column 'client'")
    assert str(caught.value).startswith("column 'client'")


def test_repeats_are_refused_with_the_label():
    with pytest.raises(ValueError, match=r"distinct, got 'b' 2 times"):
        Labels(["a", "b", "b"])
    with pytest.raises(ValueError, match="one-dimensional"):
        Labels([["a"], ["b"]])
    with pytest.raises(TypeError, match="name must be"):
        Labels(["a"], name=3)


@pytest.mark.parametrize("asked", [[1], np.array([1]), pa.array([1]), pd.Series([1])])
def test_another_kind_of_label_is_an_error(asked):
    with pytest.raises(TypeError, match="rows must be strings, as the labels are, got integers"):
        Labels(["a"]).positions(asked, what="rows")
    with pytest.raises(TypeError, match="dates"):
        Labels(np.array(["2024"], "datetime64[D]")).positions(asked)


def test_labels_are_frozen_and_compare_by_content():
    given = np.array([3, 1])
    labels = Labels(given, "n")
    with pytest.raises(ValueError, match="read-only"):
        labels.values[0] = 9
    given[0] = 9
    assert labels.values.tolist() == [3, 1]
    assert labels == Labels([3, 1], "n")
    assert labels != Labels([3, 1])
    assert labels != Labels([1, 3], "n")
    assert Labels([3]) != Labels(["3"])
    assert labels != 3
    assert repr(labels) == "<Labels 'n': 2 of kind int64>"


@pytest.mark.subprocess
def test_lists_and_arrays_need_no_pyarrow():
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import numpy as np, pandas as pd\n"
        "from fastemf import Labels\n"
        "labels, codes = Labels.encode(['b', 'a', 'b'])\n"
        "assert labels.positions(['a', 'c']).tolist() == [1, -1]\n"
        "assert Labels(np.array([5, 3])).positions([3]).tolist() == [1]\n"
        "assert labels.positions(pd.Series(['b'], dtype=object)).tolist() == [0]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- joining --------------------------------------------------------------------------------


def test_concatenating_labels():
    joined = Labels(["b", "a"], "client").joined(Labels(["c"], "other"))
    assert joined == Labels(["b", "a", "c"], "client")
    assert Labels([-(2**63), 5]).joined(Labels([7])) == Labels([-(2**63), 5, 7])
    assert Labels([5]).joined(Labels([2**63 + 1])) == Labels([5, 2**63 + 1])
    days, seconds = np.array(["2024-02-03"], "M8[D]"), np.array(["2024-02-03T05:00:00"], "M8[s]")
    both = [datetime.datetime(2024, 2, 3), datetime.datetime(2024, 2, 3, 5)]
    assert Labels(days).joined(Labels(seconds)).values.tolist() == both


def test_concatenation_needs_labels_of_one_kind():
    with pytest.raises(ValueError, match="distinct, got 'a' 2 times"):
        Labels(["a"]).joined(Labels(["b", "a"]))
    with pytest.raises(TypeError, match="labels must be strings, as those before, got <Labels: 1"):
        Labels(["a"]).joined(Labels([1]))
    with pytest.raises((OverflowError, ValueError, TypeError)):
        Labels([-5]).joined(Labels([2**63 + 1]))
    far, fine = np.array(["9999-01-01"], "M8[D]"), np.array(["2024-01-01"], "M8[ns]")
    with pytest.raises(ValueError, match="dates must lie within the reach of"):
        Labels(far).joined(Labels(fine))

"""Schemas and tables in model files: read back, and refused where damaged."""

import copy
import json

import numpy as np
import pytest

from fastemf.features.schema import MOST_FEATURES, FeatureSchema, FeatureTable
from fastemf.features.values import read_values
from fastemf.support.array_file import DamagedFileError, read_arrays

COLUMNS = {
    "age": [3.5, None, 4.0],
    "plan": ["prö", "", None],
    "joined": np.array(["2024-01-01", "NaT", "2024-01-02"], "M8[D]"),
    "größe": [None] * 3,
}
TABLE = FeatureTable.fit({name: read_values(c, name) for name, c in COLUMNS.items()}, 3)


def packed():
    header, arrays = TABLE.pack()
    return json.loads(json.dumps(header)), {name: array.copy() for name, array in arrays.items()}


def test_features_are_read_back():
    header, arrays = packed()
    found = FeatureTable.unpack(header, arrays, 3)
    assert found.schema == TABLE.schema
    np.testing.assert_array_equal(found.values, TABLE.values)
    empty = FeatureTable(FeatureSchema((), (), ()), np.empty((3, 0)))
    assert FeatureTable.unpack(*empty.pack(), 3).schema == empty.schema


def test_no_features_of_many_rows_are_read_from_a_file(tmp_path):
    np.savez(tmp_path / "one.npz", header=np.array("{}"), values=np.empty((1000, 0)))
    assert read_arrays(tmp_path / "one.npz")["values"].shape == (1000, 0)


def test_a_header_stays_small():
    # It shares a limit of 1 MiB with the rest of the header of a model.
    columns = {f"{at}" * 300: read_values([1], "x") for at in range(MOST_FEATURES)}
    assert len(json.dumps(FeatureSchema.fit(columns).pack()[0])) < 50_000


def set_header(name, value):
    def change(header, arrays):
        header[name] = value

    return change


def set_array(name, value):
    def change(header, arrays):
        arrays[name] = value

    return change


def set_value(at, value):
    def change(header, arrays):
        arrays["values"][at] = value

    return change


CHANGES = [
    (set_header("kinds", None), "of the kinds number, date"),
    (set_header("kinds", ["number", "category", "date", []]), "of the kinds"),
    (set_header("kinds", ["number"] * 1001), "up to 1000"),
    (set_header("kinds", ["number"] * 4), "valid number of categories"),
    (set_header("categories", [0, 2, 0]), "valid number of categories"),
    (set_header("categories", [0, 10**400, 0, 0]), "valid number of categories"),
    (set_header("categories", [0, -1, 0, 0]), "valid number of categories"),
    (set_header("categories", [0, True, 0, 0]), "valid number of categories"),
    (set_header("categories", [0, 1, 0, 0]), "must have a name each"),
    (set_header("more", 1), "field of features 'more' is unknown"),
    (set_array("more", np.ones(1)), "array of features 'more' is unknown"),
    (set_array("text", np.ones(3)), "must be bytes"),
    (set_array("text", np.full(29, 255, np.uint8)), "names of features"),
    (set_array("offsets", np.ones(7)), "must be int64"),
    (set_array("offsets", np.array([[0]])), "must be int64"),
    (set_array("offsets", np.array([0, 5, 2, 3, 4, 5, 6])), "must increase"),
    (set_array("values", np.ones((2, 4))), "finite or missing numbers"),
    (set_array("values", np.ones((3, 4), np.float32)), "finite or missing numbers"),
    (set_array("values", np.ones((3, 4), complex)), "finite or missing numbers"),
    (set_value((0, 0), np.inf), "finite or missing numbers"),
    (set_value((0, 1), 2.0), "codes must be of categories"),
    (set_value((0, 1), -1.0), "codes must be of categories"),
    (set_value((0, 1), 0.5), "codes must be of categories"),
]


@pytest.mark.parametrize(("change", "wanted"), CHANGES)
def test_damaged_features_are_refused(change, wanted):
    header, arrays = packed()
    change(header, arrays)
    with pytest.raises(DamagedFileError, match=wanted):
        FeatureTable.unpack(header, arrays, 3)


@pytest.mark.parametrize(
    ("names", "categories", "wanted"),
    [
        (("a", "a"), ((), ("x",)), "must be distinct"),
        (("a", "b"), ((), ("x", "x")), "must be distinct"),
        (("a", "b"), ((), ("y", "x")), "must be sorted"),
    ],
)
def test_names_and_categories_are_distinct(names, categories, wanted):
    header, arrays = FeatureSchema(names, ("number", "category"), categories).pack()
    with pytest.raises(DamagedFileError, match=wanted):
        FeatureSchema.unpack(header, arrays)


NUMBERS = (0, -1, 3, 2**31, 2**63 - 1, 10**30, 1.5, np.nan, np.inf)
ANYTHING = (None, True, [], [[]], {}, "number", "category", ["date"], *NUMBERS)
ARRAYS = (
    np.ones(0), np.ones((3, 4)), np.arange(7), np.zeros(3, np.uint8), np.array(["a"]),
    np.full((3, 4), np.nan), np.array([0, 2**63 - 1, -(2**63)]), np.float64(3),
)  # fmt: skip


def test_random_damage_raises_only_errors_of_damaged_files():
    refused = 0
    for seed in range(3000):
        rng = np.random.default_rng(seed)
        header, arrays = copy.deepcopy(packed())
        for _ in range(rng.integers(1, 4)):
            kind = rng.integers(6)
            name = rng.choice(["kinds", "categories"])
            array = rng.choice(["text", "offsets", "values"])
            if kind == 0:
                header[name] = ANYTHING[rng.integers(len(ANYTHING))]
            elif kind == 1 and isinstance(header.get(name), list) and header[name]:
                header[name][rng.integers(len(header[name]))] = ANYTHING[
                    rng.integers(len(ANYTHING))
                ]
            elif kind == 2:
                arrays[array] = ARRAYS[rng.integers(len(ARRAYS))]
            elif kind == 3 and arrays.get(array, np.ones(0)).size:
                flat = arrays[array].reshape(-1).view(np.uint8)
                flat[rng.integers(flat.size)] = rng.integers(256)
            elif kind == 4:
                header.pop(name, None)
            else:
                arrays.pop(array, None)
        try:
            found = FeatureTable.unpack(header, arrays, 3)
        except DamagedFileError:
            refused += 1
            continue
        assert found.values.shape == (3, len(found.schema.names))
        found.schema.encode({"plan": read_values(["prö"], "plan")}, 1) if (
            "plan" in found.schema.names
            and found.schema.kinds[found.schema.names.index("plan")] == "category"
        ) else None
    assert 1000 < refused < 3000
    with pytest.raises(DamagedFileError):
        FeatureSchema.unpack(None, {})

"""Mutated tables and matrices in files are read correctly or refused with the name of the file.

Half of the mutations know the structure (cells, delimiters, quotes, headers, arrays), half are
bytes flipped, cut, repeated. Each reading ends in observations that an independent reader (Python's
csv module, pyarrow, NumPy) finds too, or in a documented error that names the file, in one line
once blanks are joined. FASTEMF_FUZZ sets the number of the long run, FASTEMF_FUZZ_SEED the seed.
"""

import csv
import gzip
import io
import os
import re
import warnings
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse as sp
from fuzz import mutations
from fuzz.mutations import pick
from pyarrow import parquet

from fastemf.sources.memory import observe

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]  # tuned fits, or many of them

DELIMITERS = {".csv": ",", ".tsv": "\t"}
NAMES = {"rows": "client", "cols": "service", "values": "ms"}
REFUSALS = (TypeError, ValueError, IndexError, OSError, MemoryError)
NUMBER = r"-?[1-9][0-9]{0,9}(\.[0-9]{1,20})?"
SHORT = 300
LONG = int(os.environ.get("FASTEMF_FUZZ", "5000"))
SEED = int(os.environ.get("FASTEMF_FUZZ_SEED", "0"))

CELLS = [
    "", " ", '""', '"', '"a', 'a"b', '"a""b"', '"a,b"', '"a\nb"', "\r", "\0", "ü", "\ufeff", "007",
    "-0", "+1", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e5", "1_0",
    "1e400", "-1e-400", "nan", "NaN", "inf", "-inf", "null", "NA", "true", "0x10", "1,5", "1;5",
    "１", "2024-01-01", "x" * 200_000, "9" * 400, "'", "\\", "\t", ",", ";", "#", "eu-7", "-1",
]  # fmt: skip


# --- good files ----------------------------------------------------------------------------


def lines(rng):
    """A header and rows, with labels that are integers or strings."""
    size = int(rng.integers(1, 12))
    client = rng.choice(["eu-7", "us-1", "Zürich", "a b", 'q"q'], size).tolist()
    service = [str(i) for i in rng.integers(-3, 4, size)]
    ms = [repr(float(x)) for x in rng.gamma(2, 20, size).round(2) + 0.01]
    note = rng.choice(["", "x", "long, long"], size).tolist()
    rows = [list(row) for row in zip(client, service, ms, note, strict=True)]
    return [["client", "service", "ms", "note"], *rows]


def as_text(table, delimiter):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(table)
    return out.getvalue()


def as_parquet(table, rng):
    columns = dict(zip(table[0], zip(*table[1:], strict=True), strict=True))
    typed = {
        "client": pa.array(columns["client"]),
        "service": pa.array([int(x) for x in columns["service"]]),
        "ms": pa.array([float(x) for x in columns["ms"]]),
    }
    if rng.random() < 0.3:
        typed["client"] = typed["client"].dictionary_encode()
    out = io.BytesIO()
    parquet.write_table(pa.table(typed), out, compression=pick(rng, ["none", "snappy", "gzip"]))
    return out.getvalue()


def matrix(rng):
    shape = tuple(int(size) for size in rng.integers(1, 8, 2))
    R = sp.coo_array(np.where(rng.random(shape) < 0.6, rng.random(shape), 0.0))
    return R if R.nnz else sp.coo_array(np.ones(shape))


def as_market(R, rng):
    out = io.BytesIO()
    scipy.io.mmwrite(out, R if rng.random() < 0.8 else R.toarray(), precision=17)
    return out.getvalue()


def as_npz(R, rng):
    out = io.BytesIO()
    form = pick(rng, ["csr", "csc", "coo", "bsr", "dia"])
    sp.save_npz(out, R.asformat(form), compressed=bool(rng.integers(0, 2)))
    return out.getvalue()


# --- mutations -----------------------------------------------------------------------------


def mutated_table(table, rng):
    """Put odd cells into a table, and drop, repeat and move cells, rows and columns."""
    table = [list(row) for row in table]
    for _ in range(int(rng.integers(0, 4))):
        row = pick(rng, table)
        kind = int(rng.integers(0, 6))
        at = int(rng.integers(0, max(1, len(row))))
        odd = pick(rng, CELLS)
        if kind < 3 and row:
            row[at] = odd
        elif kind == 3 and row:
            del row[at]
        elif kind == 4:
            row.insert(at, odd)
        else:
            table.insert(int(rng.integers(0, len(table) + 1)), list(row))
    return table


def loose_text(table, delimiter, rng):
    """Join cells without escaping quotes and delimiters."""
    end = ["\n", "\r\n", "\r"][int(rng.choice(3, p=[0.7, 0.2, 0.1]))]
    text = end.join(delimiter.join(row) for row in table)
    return text + (end if rng.random() < 0.8 else "")


WRAPPERS = [
    gzip.compress, lambda raw: b"PK\x03\x04" + raw, lambda raw: b"\xff\xfe" + raw,
    lambda raw: raw.decode(errors="replace").encode("utf-16"), lambda raw: b'[{"a": 1}]' + raw,
    lambda raw: raw.replace(b",", b";"), lambda raw: raw.decode(errors="replace").encode("latin-1",
    errors="replace"), lambda raw: b"\xef\xbb\xbf" + raw, lambda raw: b"", lambda raw: b"\0" * 64,
]  # fmt: skip


def mutated_bytes(raw, rng):
    """Flip, cut, repeat, insert bytes, once or a few times."""
    kinds = ["flip_bits", "flip_bits", "overwrite", "truncate", "insert_or_cut", "splice"]
    for _ in range(int(rng.integers(1, 4))):
        raw = getattr(mutations, pick(rng, kinds))(rng, raw, ())
    return raw


NUMBERS = ["0", "-1", "1", "2", "3000000000", "99999999999999999999", "1e3", "x", "", "nan", "inf"]


def mutated_market(raw, rng):
    """Change numbers and words of the header and of entries."""
    rows = [line.split(" ") for line in raw.decode().splitlines()]
    words = ["array", "coordinate", "pattern", "integer", "complex", "symmetric", "hermitian"]
    for _ in range(int(rng.integers(1, 3))):
        row = rows[0] if rng.random() < 0.3 else pick(rng, rows)
        at = int(rng.integers(0, len(row)))
        row[at] = str(rng.choice(words if row is rows[0] else NUMBERS))
    return "\n".join(map(" ".join, rows)).encode() + b"\n"


def mutated_npz(raw, rng):
    """Change a part of an archive and write it with the right checksums."""
    parts = dict(mutations.members(raw))
    name = pick(rng, list(parts))
    kind = int(rng.integers(0, 5))
    if kind == 0:
        del parts[name]
    elif kind == 1:
        parts[name] = mutated_bytes(parts[name], rng)
    elif kind == 2:
        header, size = parts[name], str(rng.choice(["9", "10", "-1", "4000000000", "1e3", "()"]))
        parts[name] = header.replace(b"(", f"({size}, ".encode()[: len(size) + 2], 1)
    else:
        others = [
            np.array(b"coo"), np.array([10**9, 10**9]), np.array([-1, 3]), np.array([2.0, 3.0]),
            np.arange(5), np.full(3, 10**12), np.full(3, -5), np.ones((2, 2)), np.array(["x"]),
            np.empty(0), np.array([7, 7, 7]), np.ones(4, complex),
        ]  # fmt: skip
        parts[name] = mutations.as_npy(pick(rng, others))
    return mutations.archived(parts)


def made(rng):
    """A mutated file: its ending and its bytes."""
    form = str(rng.choice([".csv", ".tsv", ".parquet", ".mtx", ".mtx.gz", ".npz"]))
    is_structural = rng.random() < 0.5
    if form in DELIMITERS:
        delimiter, table = DELIMITERS[form], lines(rng)
        if not is_structural:
            return form, mutated_bytes(as_text(table, delimiter).encode(), rng)
        table = mutated_table(table, rng)
        write = as_text if rng.random() < 0.5 else lambda *given: loose_text(*given, rng)
        raw = write(table, delimiter).encode(errors="replace")
        return form, pick(rng, WRAPPERS)(raw) if rng.random() < 0.2 else raw
    if form == ".parquet":
        return form, mutated_bytes(as_parquet(lines(rng), rng), rng)
    if form == ".npz":
        raw = as_npz(matrix(rng), rng)
        return form, (mutated_npz if is_structural else mutated_bytes)(raw, rng)
    raw = as_market(matrix(rng), rng)
    raw = mutated_market(raw, rng) if is_structural else raw
    raw = gzip.compress(raw) if form == ".mtx.gz" else raw
    return form, raw if is_structural else mutated_bytes(raw, rng)


# --- oracles -------------------------------------------------------------------------------


def entries(observed):
    """Observations as a sorted list of (row, column, value), by label if there are labels."""
    side = observed.by_row
    rows, cols = side.keys.tolist(), side.indices.tolist()
    if observed.row_labels is not None:
        rows = [str(label) for label in observed.row_labels.take(rows)]
        cols = [str(label) for label in observed.col_labels.take(cols)]
    return sorted(zip(rows, cols, side.values.tolist(), strict=True))


def csv_rows(text, delimiter, strict=False):
    """Nonempty rows by Python's csv module, with long fields allowed."""
    usual = csv.field_size_limit(1 << 30)
    try:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=strict)
        return [row for row in lines if row]
    finally:
        csv.field_size_limit(usual)


def by_csv(raw, delimiter):
    header, *rows = csv_rows(raw.decode("utf-8-sig", errors="replace"), delimiter)
    at = [header.index(name) for name in NAMES.values()]
    return sorted((row[at[0]], row[at[1]], float(row[at[2]])) for row in rows)


def is_sound(raw, delimiter):
    """Whether a table must be read: UTF-8, rows of one length, labels, and plain numbers."""
    try:
        header, *rows = csv_rows(raw.decode("utf-8-sig"), delimiter, strict=True)
    except (ValueError, csv.Error):  # no UTF-8, no rows, or wrong quotes
        return False
    if not rows or any(header.count(name) != 1 for name in NAMES.values()):
        return False
    if any(len(row) != len(header) for row in rows):
        return False
    at = [header.index(name) for name in NAMES.values()]
    labelled = all(row[at[0]] and row[at[1]] for row in rows)
    return labelled and all(re.fullmatch(NUMBER, row[at[2]]) for row in rows)


def by_arrow(raw):
    """Entries by pyarrow; None if it refuses the file, for example for its own metadata."""
    try:
        table = parquet.read_table(io.BytesIO(raw), columns=list(NAMES.values())).to_pylist()
    except (OSError, ValueError):
        return None
    return sorted((str(row["client"]), str(row["service"]), float(row["ms"])) for row in table)


def by_market(raw):
    """Entries of a general coordinate matrix of real numbers; None for other kinds."""
    header, *rest = raw.decode("latin-1").splitlines()
    if "coordinate" not in header.lower() or "general" not in header.lower():
        return None
    if not any(word in header.lower() for word in ("real", "integer", "double")):
        return None
    body = [line.split() for line in rest if line.strip() and not line.startswith("%")]
    return sorted((int(float(i)) - 1, int(float(j)) - 1, float(x)) for i, j, x in body[1:])


def by_scipy(raw):
    """Nonzero entries (SciPy drops zeros of diagonals); None if SciPy raises an error."""
    try:
        R = sp.load_npz(io.BytesIO(raw)).tocoo()
    except Exception:  # for reasons that are not checked here
        return None
    found = zip(R.row.tolist(), R.col.tolist(), R.data.astype(float).tolist(), strict=True)
    return sorted(entry for entry in found if entry[2] != 0)


def check_reading(form, raw, observed):
    """Compare with an independent reader."""
    if form in DELIMITERS:
        assert entries(observed) == by_csv(raw, DELIMITERS[form])
    elif form == ".parquet":
        assert by_arrow(raw) in (None, entries(observed))
    elif form == ".npz":
        found = [entry for entry in entries(observed) if entry[2] != 0]
        assert by_scipy(raw) in (None, found)
    else:
        wanted = by_market(gzip.decompress(raw) if form == ".mtx.gz" else raw)
        assert wanted is None or entries(observed) == wanted


def check_refusal(form, raw, path, refusal):
    """Check that an error is a built-in one, short, names the file, and is justified."""
    assert type(refusal).__module__ == "builtins"
    assert str(path) in str(refusal)
    assert len(str(refusal)) < 8000
    assert form not in DELIMITERS or not is_sound(raw, DELIMITERS[form])


def run(count, seed, folder):
    """Read `count` mutated files; return how many of each form were read and refused."""
    rng = np.random.default_rng(seed)
    found = Counter()
    for number in range(count):
        form, raw = made(rng)
        path = folder / f"fuzzed{form}"
        path.write_bytes(raw)
        names = NAMES if form in (".csv", ".tsv", ".parquet") else {}
        observed = refusal = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                observed = observe(path, **names)
        except REFUSALS as error:
            refusal = error
        try:
            if refusal is None:
                check_reading(form, raw, observed)
            else:
                check_refusal(form, raw, path, refusal)
        except Exception as error:
            error.add_note(f"number {number} of seed {seed}, a {form} file: {refusal!r}")
            raise
        found[form, "read" if refusal is None else "refused"] += 1
    for (form, end), times in sorted(found.items()):
        print(f"{form:8} {end:8} {times}")
    print(f"{count} mutated tables, seed {seed}")
    return found


@pytest.mark.parametrize("count", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
def test_mutated_tables_are_read_correctly_or_refused(count, tmp_path):
    found = run(count, SEED + (count == LONG), tmp_path)
    assert {form for form, _ in found} == {".csv", ".tsv", ".parquet", ".mtx", ".mtx.gz", ".npz"}
    assert {end for _, end in found} == {"read", "refused"}

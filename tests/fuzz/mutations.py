"""Random changes of ``.npz`` files: bytes, archives, arrays and JSON headers.

A mutation takes a generator and the content of a file and returns another content. Structural
mutations write archives with valid checksums, so that the change reaches the code that reads the
arrays and not only the code that reads the archive.
"""

import io
import json
import os
import warnings
import zipfile

import numpy as np

NUMBERS = (
    0, 1, -1, 2, 7, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63,
    2**64 - 1, 10**30, 10**400,
)  # fmt: skip
FLOATS = (0.0, -0.0, -1.0, 0.5, 1e-320, 1e38, 1e154, 1e300, -1e300, np.nan, np.inf, -np.inf)
TEXTS = ("", "f8", "count", "fastemf", "\0", "é\ud800", "a" * 3000, "../../x", "int64", "str")
VALUES = (
    None, True, False, *NUMBERS, *FLOATS, *TEXTS, [], [[]], [1, 2], [None], [1.5] * 3, ["a"], {},
    {"kind": "str", "name": None}, {"kind": [], "name": 1}, {"checkpoint": 2},
)  # fmt: skip
ARRAYS = (
    np.float64(3), np.ones(0), np.ones((0, 2)), np.ones((3, 2)), np.ones((6, 3), np.float32),
    np.arange(5), np.arange(5, dtype=">i8"), np.full((6, 2), np.nan), np.full(6, np.inf),
    np.array(["a", "b"]), np.array([b"x"]), np.ones((2, 2, 2)), np.ones(6, complex),
    np.ones((2, 16)) * 1e300, np.zeros(3, "f8,i4"), np.zeros(2, "M8[D]"), np.zeros(6, bool),
    np.zeros((1,) * 32), np.array([2**63 - 1, -(2**63)]), np.full((6, 2), 1e200),
)  # fmt: skip
TYPES = ("<f4", "<f8", ">f8", "<i8", "<u8", "|u1", "|b1", "<f2", "<c16", "<U2", "|S8", "<i4")
DESCRIPTIONS = (
    "'<f8'", "'O'", "'<O8'", "'<f7'", "'<U0'", "'|V0'", "'<U99999'", "'<f99999999999'", "()", "[]",
    "[('a', '<f8')]", "3", "None", "'" + "(" * 90, "'M8[999999999999D]'", "-" * 900 + "1",
)  # fmt: skip
SHAPES = (
    "()", "(0,)", "(2, 3)", "(6)", "6", "(-1,)", "(2., 3)", "(10**9,)", "(999999999999999999,)",
    "(0, 999999999999999999)", "(4294967296, 4294967296)", "(" + "1, " * 40 + ")", "(True, 2)",
    "(" * 300, "(1" + "0" * 5000 + ",)", "[2, 3]",
)  # fmt: skip


def count_of(default):
    """Return the number of cases of a long run: the environment variable FASTEMF_FUZZ, or this."""
    return int(os.environ.get("FASTEMF_FUZZ", default))


def mutants(content, count, seed, others=()):
    """Yield names and contents of `count` mutants; some take pieces from the contents `others`."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        changed, names = content, []
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            mutation = MUTATIONS[rng.integers(len(MUTATIONS))]
            names.append(mutation.__name__)
            try:
                changed = mutation(rng, changed, others)
            except Exception:  # an earlier mutation damaged the structure
                names[-1] += " (failed)"
        yield f"mutant {number} of seed {seed}: {', '.join(names)}", changed


def pick(rng, options):
    return options[rng.integers(len(options))]


# --- bytes -----------------------------------------------------------------------------------


def flip_bits(rng, content, others):
    damaged = bytearray(content)
    for at in rng.integers(0, len(content), rng.integers(1, 5)) if content else ():
        damaged[at] ^= 1 << rng.integers(8)
    return bytes(damaged)


def overwrite(rng, content, others):
    at, length = rng.integers(0, len(content) + 1), rng.integers(1, 40)
    new = pick(rng, (bytes(length), b"\xff" * length, rng.bytes(length)))
    return content[:at] + new + content[at + length :]


def truncate(rng, content, others):
    return content[: rng.integers(0, len(content) + 1)]


def insert_or_cut(rng, content, others):
    at, length = rng.integers(0, len(content) + 1), int(rng.integers(1, 200))
    if rng.random() < 0.5:
        return content[:at] + content[at + length :]
    return content[:at] + rng.bytes(length) + content[at:]


def splice(rng, content, others):
    other = pick(rng, (content, *others))
    first, last = sorted(rng.integers(0, len(other) + 1, 2))
    at = rng.integers(0, len(content) + 1)
    skip = (last - first) * rng.integers(0, 2)
    return content[:at] + other[first:last] + content[at + skip :]


def edit_directory(rng, content, others):
    """Write an odd number anywhere into the directory of the archive."""
    damaged = bytearray(content)
    start = max(content.find(b"PK\x01\x02"), 0)
    size = int(pick(rng, (1, 2, 4, 8)))
    at = int(rng.integers(start, max(start + 1, len(content) - size)))
    number = int(pick(rng, NUMBERS)) % 256**size
    damaged[at : at + size] = number.to_bytes(size, "little")
    return bytes(damaged)


# --- archives --------------------------------------------------------------------------------


def members(content):
    """Return names and contents of the members of an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def archived(parts, compression=zipfile.ZIP_STORED):
    """Write an archive with valid checksums, from a dictionary or from pairs."""
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", compression) as archive:
        warnings.simplefilter("ignore", UserWarning)
        for name, data in parts.items() if isinstance(parts, dict) else parts:
            archive.writestr(name, data)
    return file.getvalue()


def change_members(rng, content, others):
    parts = members(content)
    at = rng.integers(len(parts))
    name, data = parts[at]
    kind = rng.integers(7)
    if kind == 0:
        del parts[at]
    elif kind == 1:
        parts.append(parts[at])
    elif kind == 2:
        parts.append((name, pick(rng, parts)[1]))
    elif kind == 3:
        odd = ("", "x", "X.npy", "0/X.npy", "7/X.npy", "header.npy", "/", "é.npy", "a" * 900)
        parts[at] = (pick(rng, odd), data)
    elif kind == 4:
        other = rng.integers(len(parts))
        parts[at], parts[other] = (name, parts[other][1]), (parts[other][0], data)
    elif kind == 5:
        odd = (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
        return archived(parts, pick(rng, odd))
    elif others:
        parts[at] = pick(rng, members(pick(rng, others)))
    return archived(parts)


def with_member(rng, content, change, wanted=lambda name: True):
    """Change one member of an archive."""
    parts = members(content)
    at = pick(rng, [at for at, (name, _) in enumerate(parts) if wanted(name)])
    parts[at] = (parts[at][0], change(parts[at][1]))
    return archived(parts)


# --- arrays ----------------------------------------------------------------------------------


def as_npy(array):
    """Return the content of an ``.npy`` file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def change_array(rng, content, others):
    def change(data):
        array = np.load(io.BytesIO(data))
        kind = rng.integers(7)
        if kind == 0:
            array = pick(rng, ARRAYS)
        elif kind == 1:
            array = array.astype(pick(rng, TYPES))
        elif kind == 2:
            array = array.ravel().view(np.uint8).view(pick(rng, TYPES))
        elif kind == 3:
            array = np.asfortranarray(array) if rng.random() < 0.5 else array.T
        elif kind == 4:
            array = array[: rng.integers(array.shape[0] + 1)]
        elif kind == 5:
            array = np.concatenate([array, array])
        else:
            odd = FLOATS if array.dtype.kind == "f" else NUMBERS[:12]
            array.flat[rng.integers(array.size)] = pick(rng, odd)
        return as_npy(array)

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return with_member(rng, content, change)


def change_array_header(rng, content, others):
    """Change the header of an array and keep its numbers."""

    def change(data):
        end = data.index(b"\n") + 1
        text = data[10:end].decode("latin1").rstrip()
        before, _, shape = text.partition("'shape': ")
        kind = rng.integers(5)
        if kind == 0:
            text = f"{before}'shape': {pick(rng, SHAPES)}, }}"
        elif kind == 1:
            descr = pick(rng, DESCRIPTIONS)
            text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}"
        elif kind == 2:
            text = text.replace("False", pick(rng, ("True", "1", "None", "")))
        elif kind == 3:
            at = rng.integers(len(text))
            text = text[:at] + pick(rng, "{}()[]',:0 9\\\n\0-") + text[at + rng.integers(2) :]
        else:
            text = text[: rng.integers(len(text))]
        raw = text.encode("latin1") + b"\n"
        length = len(raw) if rng.random() < 0.9 else int(pick(rng, NUMBERS)) % 2**16
        version = data[6:8] if rng.random() < 0.9 else rng.bytes(2)
        return data[:6] + version + length.to_bytes(2, "little") + raw + data[end:]

    return with_member(rng, content, change)


# --- JSON headers ----------------------------------------------------------------------------


def places(tree, here=()):
    """Yield the path of every part of a JSON value."""
    yield here
    if isinstance(tree, (dict, list)):
        for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(part, (*here, key))


def changed(tree, path, change):
    """Return a JSON value with the part at a path replaced by `change` of it."""
    if not path:
        return change(tree)
    copy = tree.copy()
    copy[path[0]] = changed(tree[path[0]], path[1:], change)
    return copy


def change_json(rng, content, others):
    def without(tree):
        if isinstance(tree, dict) and tree:
            gone = pick(rng, list(tree))
            return {key: part for key, part in tree.items() if key != gone}
        return tree[:-1] if isinstance(tree, list) else None

    def change(data):
        header = json.loads(np.load(io.BytesIO(data)).tobytes())
        options = [*places(header)]
        path = pick(rng, options)
        kind = rng.integers(5)
        if kind < 2:
            text = json.dumps(changed(header, path, lambda _: pick(rng, VALUES)))
        elif kind == 2:
            text = json.dumps(changed(header, path, without))
        elif kind == 3:
            text = json.dumps(header | {str(pick(rng, TEXTS)): pick(rng, VALUES)})
        else:
            text = json.dumps(header)
            at = rng.integers(len(text))
            new = pick(rng, ('"', "[" * 2000, "}", ",", "9" * 5000, "NaN", "-"))
            text = text[:at] + new + text[at + rng.integers(2) :]
        return as_npy(np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8))

    return with_member(rng, content, change, lambda name: name.endswith("header.npy"))


# Structural mutations are more frequent, because they reach more code.
MUTATIONS = (
    flip_bits, overwrite, truncate, insert_or_cut, splice, edit_directory, edit_directory,
    change_members, change_members, change_array, change_array, change_array, change_array_header,
    change_array_header, change_json, change_json, change_json,
)  # fmt: skip

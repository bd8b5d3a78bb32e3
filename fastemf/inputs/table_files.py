"""Tables in files, databases and SQL, read by DuckDB, and matrices in files, by extension."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fastemf.inputs import file_lists
from fastemf.inputs.columns import Where, first_null
from fastemf.inputs.database import connect
from fastemf.inputs.matrix_files import read_matrix
from fastemf.inputs.tables import arrow, table_row
from fastemf.inputs.text_types import integers_of_text, types_of_text
from fastemf.support.atomic_file import replace_file
from fastemf.support.progress import count_steps
from fastemf.support.terminal import write_output


class FromFile(NamedTuple):
    """Content of a file."""

    content: Any  # an Arrow table or a SciPy sparse matrix
    where: Where  # describes the position of a row


@contextmanager
def naming(source: Any) -> Iterator[None]:
    """Add the name of a file to errors about its content."""
    try:
        yield
    except (TypeError, ValueError, IndexError, MemoryError) as error:
        name = file_lists.name_of(source)
        if name in str(error) or isinstance(source, list):
            raise
        # Subclasses such as UnicodeDecodeError take other arguments.
        kinds = (TypeError, IndexError, MemoryError, ValueError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        raise kind(f"{name}: {error}") from None


def read_file(
    source: Any,
    labels: Sequence[Any],
    numbers: Sequence[Any],
    texts: Sequence[Any] = (),
    n_threads: int | None = None,
    progress: bool = False,
    features: Sequence[str] = (),
) -> FromFile:
    r"""Read columns of a table, or the matrix in a file.

    Parameters
    ----------
    source
        Any source of `open_table` that is not in memory, a path that ends in .mtx, .mtx.gz or .npz
        (of SciPy), ``"-"`` for CSV on standard input, or an open CSV file.
    labels, numbers
        Names of the columns of labels and of numbers.
    texts
        Columns of labels or features that stay strings, even if all text of a CSV file is numbers.
    n_threads
        Threads of DuckDB.
    progress
        Whether to show a progress bar.
    features
        Further columns. Those of text files become numbers, booleans or dates where all of their
        text is.

    Raises
    ------
    ValueError
        A column is missing, a value is not a number, or the file is empty or damaged.

    Examples
    --------
    >>> import io
    >>> from fastemf.inputs import table_files
    >>> log = io.StringIO("client,ms\neu-7,12.5\n")
    >>> table_files.read_file(log, labels=["client"], numbers=["ms"]).content.to_pylist()
    [{'client': 'eu-7', 'ms': 12.5}]
    """
    from fastemf.inputs.relations import open_table

    if not file_lists.is_table_source(source):
        file_lists.check_regular(Path(source))
        return FromFile(read_matrix(Path(source)), table_row)
    batches = []
    counting = count_steps(None, "line", "reading", shows=progress, scale=True)
    with counting as advance, closing(connect(n_threads=n_threads)) as connection:
        opened = open_table(source, connection, labels, numbers, features)
        for batch in opened.batches():
            batches.append(batch)
            advance(len(batch))
    if not batches:
        what = "lines after the header" if opened.is_text else "rows"
        raise ValueError(f"{opened.name}: expected {what}, got none")
    table = arrow().Table.from_batches(batches)
    for number in numbers:
        if table.column(number).null_count:
            opened.explain(number, first_null(table.column(number)))
    for at, name in enumerate(table.column_names):
        if name in texts:
            continue
        if opened.is_text and name in labels:
            table = table.set_column(at, name, integers_of_text(table.column(name)))
        elif not opened.has_types and name in features and name not in numbers:
            table = table.set_column(at, name, types_of_text(table.column(name)))
    return FromFile(table, opened.where)


def column_names(source: Any) -> list[str] | None:
    r"""Return the column names of a table that is not in memory; None for a file with a matrix.

    `source` is as in `read_file`; an open file is read to its end.

    Examples
    --------
    >>> import io
    >>> from fastemf.inputs import table_files
    >>> table_files.column_names(io.StringIO("client,ms\neu-7,12.5\n"))
    ['client', 'ms']
    """
    from fastemf.inputs.relations import find_table

    if not file_lists.is_table_source(source):
        file_lists.check_regular(Path(source))
        return None
    with closing(connect()) as connection:
        return find_table(source, connection).names([])


# --- writing ----------------------------------------------------------------------------------


def write_table(target: Any, columns: Mapping[str, Any]) -> None:
    """Write columns of equal length as a table.

    Parameters
    ----------
    target
        A path that ends in .csv, .tsv or .parquet, ``"-"`` for CSV on standard output, or
        an open file for CSV.
    columns
        Arrays by name.

    Examples
    --------
    >>> import io
    >>> from fastemf.inputs import table_files
    >>> out = io.StringIO()
    >>> table_files.write_table(out, {"client": ["eu-7"], "ms": [12.5]})
    >>> print(out.getvalue())
    "client","ms"
    "eu-7",12.5
    <BLANKLINE>
    """
    from pyarrow import csv, parquet

    table, is_stream = arrow().table(dict(columns)), not isinstance(target, (str, os.PathLike))
    extension = ".csv"
    if not is_stream and target != "-":
        extension = file_lists.file_extension(Path(target), file_lists.WRITTEN)
    content = io.BytesIO()
    if extension == ".parquet":
        parquet.write_table(table, content)
    else:
        options = csv.WriteOptions(delimiter=file_lists.DELIMITERS[extension])
        csv.write_csv(table, content, options)
    if is_stream:
        is_text = isinstance(target, io.TextIOBase)
        target.write(content.getvalue().decode() if is_text else content.getvalue())
    elif target == "-":
        write_output(content.getvalue())  # UTF-8, independent of the terminal
    else:
        with replace_file(target, "a table") as file:
            file.write(content.getvalue())


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise an error if no table can be written to a path of this name."""
    file_lists.file_extension(Path(path), file_lists.WRITTEN)

"""`Entities`, one side of a low-rank model: its rows or its columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fastemf.inputs import columns
from fastemf.inputs.labels import Labels, check_known
from fastemf.support.arrays import Array, Floats, Ints
from fastemf.support.validation import check_indices
from fastemf.tuning.corrections import EntityEffects
from fastemf.tuning.noise import EntityNoise


@dataclass(frozen=True, eq=False)
class Entities:
    """The rows, or the columns, of a low-rank model.

    Either both sides of a model have intercepts or neither has, and likewise labels.

    Parameters
    ----------
    factor
        One row of k numbers for each entity, that is, for each row or column of the matrix.
    intercepts
        One number for each entity; None in a model without intercepts.
    labels
        Labels of the entities; None if the data had none.
    unseen
        Indices of the entities without observations.
    noise
        Noise variances of the entities, where the fit or its correction tables use them.
    effects
        Row or column effects, where predictions use correction tables.

    Examples
    --------
    >>> import numpy as np, fastemf
    >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0, 5.0]), omega=0.5, k=1, reg=0)
    >>> fit.rows.size, fit.cols.size, fit.cols.k
    (2, 3, 1)
    """

    factor: Array
    intercepts: Array | None = None
    labels: Labels | None = None
    unseen: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    noise: EntityNoise | None = None
    effects: EntityEffects | None = None

    @cached_property
    def knot_positions(self) -> Floats:
        """Positions among the knots of the correction tables: see `Corrections.knot_positions`."""
        if self.effects is None:
            return np.zeros((self.size, 0))
        # Unknown variances are 1, so their logarithms are 0.
        noise = np.zeros(self.size) if self.noise is None else np.log(self.noise.variances)
        return self.effects.corrections.knot_positions(self.effects.values, noise)

    @classmethod
    def from_extended(
        cls, extended: Array, k: int, labels: Labels | None = None, unseen: Ints | None = None
    ) -> Entities:
        """Split a factor whose column after the k-th, if any, holds the intercepts."""
        intercepts = extended[:, k].copy() if extended.shape[1] > k else None
        unseen = np.empty(0, np.int64) if unseen is None else unseen
        return cls(np.ascontiguousarray(extended[:, :k]), intercepts, labels, unseen)

    @property
    def size(self) -> int:
        """Number of entities."""
        return int(self.factor.shape[0])

    @property
    def k(self) -> int:
        """The rank."""
        return int(self.factor.shape[1])

    @property
    def has_intercepts(self) -> bool:
        """Whether the model has intercepts."""
        return self.intercepts is not None

    @property
    def name(self) -> str | None:
        """Name of the table's column from which the labels were read, if there is one."""
        return None if self.labels is None else self.labels.name

    def ids(self) -> Array:
        """Return the labels of the entities, as predictions accept them, or their indices.

        Times with a time zone are `datetime.datetime` objects.

        Examples
        --------
        >>> import numpy as np
        >>> from fastemf.models.entities import Entities
        >>> Entities(np.ones((3, 1))).ids().tolist()
        [0, 1, 2]
        """
        if self.labels is None:
            return np.arange(self.size)
        return columns.objects(list(self.labels)) if self.labels.is_utc else self.labels.values

    def extended_factor(self) -> Array:
        """Return the factor with the intercepts, if any, as its last column.

        Examples
        --------
        >>> import numpy as np
        >>> from fastemf.models.entities import Entities
        >>> Entities(np.ones((2, 1)), np.array([7.0, 8.0])).extended_factor().tolist()
        [[1.0, 7.0], [1.0, 8.0]]
        """
        if self.intercepts is None:
            return self.factor
        return np.column_stack([self.factor, self.intercepts])

    def positions(self, given: Any, what: str) -> Ints:
        """Return the indices of entities given by label or index; -1 for an unknown one.

        Examples
        --------
        >>> import numpy as np
        >>> from fastemf import Labels
        >>> from fastemf.models.entities import Entities
        >>> regions = Entities(np.ones((2, 1)), labels=Labels(["eu", "us"]))
        >>> regions.positions(["us", "uk"], "rows").tolist()
        [1, -1]
        """
        if self.labels is None:
            found = check_indices(given, what, None)
            return np.where(found < self.size, found, -1)
        return self.labels.positions(given, what=what)

    def position(self, given: Any) -> int | None:
        """Return the index of one entity given as a plain integer or string, quickly.

        The result is None if it is unknown or of another type; `positions` handles these cases.

        Examples
        --------
        >>> import numpy as np
        >>> from fastemf import Labels
        >>> from fastemf.models.entities import Entities
        >>> regions = Entities(np.ones((2, 1)), labels=Labels(["eu", "us"]))
        >>> regions.position("us"), regions.position("uk"), regions.position(["us"])
        (1, None, None)
        """
        if self.labels is not None:
            return self.labels.place(given)
        if type(given) not in (int, np.int64):
            return None
        return int(given) if 0 <= given < self.size else None

    def known_positions(self, given: Any, what: str) -> Ints:
        """Return the indices of entities as `positions` does; unknown ones are an error.

        Examples
        --------
        >>> import numpy as np
        >>> from fastemf import Labels
        >>> from fastemf.models.entities import Entities
        >>> regions = Entities(np.ones((2, 1)), labels=Labels(["eu", "us"]))
        >>> regions.known_positions("us", "rows").tolist()
        1
        """
        if self.labels is None:
            return check_indices(given, what, self.size)
        found = self.positions(given, what)
        check_known((found, given, what))
        return found

    def ids_at(self, positions: Ints) -> Array:
        """Return the labels at positions, with None or NaT for -1, or the positions.

        Examples
        --------
        >>> import numpy as np
        >>> from fastemf import Labels
        >>> from fastemf.models.entities import Entities
        >>> regions = Entities(np.ones((2, 1)), labels=Labels(["eu", "us"]))
        >>> regions.ids_at(np.array([1, -1])).tolist()
        ['us', None]
        """
        if self.labels is None:
            return positions
        found = self.ids()[positions]
        if found.dtype.kind != "M":
            found = found.astype(object)  # integers have no missing value
        found[positions < 0] = None
        return found

"""Operations on whole vectors: compiled ones, or their Python meaning where the JIT is off."""

# mypy: disable-error-code="assignment"

from fastemf.kernels.compilation import INTERPRETED

if INTERPRETED:
    from fastemf.kernels.vectors.meaning import (
        at_least,
        copy,
        dots,
        fetch,
        fetch_ones,
        gather_dots,
        lanes_in,
        lanes_of,
        lanes_out,
        make_tile,
        make_weighted_sum,
        move,
        panel,
        pivots,
        substitute_backward,
        substitute_forward,
        trial,
        update_residuals,
    )
else:
    from fastemf.kernels.vectors.observations import (
        at_least,
        copy,
        dots,
        fetch,
        fetch_ones,
        gather_dots,
        lanes_of,
        make_tile,
        make_weighted_sum,
        move,
        trial,
        update_residuals,
    )
    from fastemf.kernels.vectors.triangles import (
        lanes_in,
        lanes_out,
        panel,
        pivots,
        substitute_backward,
        substitute_forward,
    )

__all__ = [
    "at_least",
    "copy",
    "dots",
    "fetch",
    "fetch_ones",
    "gather_dots",
    "lanes_in",
    "lanes_of",
    "lanes_out",
    "make_tile",
    "make_weighted_sum",
    "move",
    "panel",
    "pivots",
    "substitute_backward",
    "substitute_forward",
    "trial",
    "update_residuals",
]

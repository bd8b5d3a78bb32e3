"""Operations on whole vectors: compiled ones, or their Python meaning where the JIT is off."""

# mypy: disable-error-code="assignment"

from fastemf.kernels.compilation import INTERPRETED
from fastemf.kernels.vectors.terms import Terms

if INTERPRETED:
    from fastemf.kernels.vectors.meaning import (
        add_terms,
        at_least,
        copy,
        count_bits,
        dots,
        fetch,
        fetch_ones,
        gather_dots,
        hint,
        keep_sampled,
        lanes_in,
        lanes_of,
        lanes_out,
        long_dots,
        lowest,
        make_corner_tile,
        make_direct,
        make_tile,
        make_weighted_sum,
        move,
        multiply_at,
        panel,
        pivots,
        substitute_backward,
        substitute_forward,
        subtract_at,
        trial,
        update_residuals,
    )
else:
    from fastemf.kernels.vectors.direct import make_direct
    from fastemf.kernels.vectors.gram import make_corner_tile, make_tile
    from fastemf.kernels.vectors.observations import (
        at_least,
        copy,
        count_bits,
        dots,
        fetch,
        fetch_ones,
        gather_dots,
        hint,
        keep_sampled,
        lanes_of,
        long_dots,
        lowest,
        make_weighted_sum,
        move,
        multiply_at,
        subtract_at,
        trial,
        update_residuals,
    )
    from fastemf.kernels.vectors.sums import add_terms
    from fastemf.kernels.vectors.triangles import (
        lanes_in,
        lanes_out,
        panel,
        pivots,
        substitute_backward,
        substitute_forward,
    )

__all__ = [
    "Terms",
    "add_terms",
    "at_least",
    "copy",
    "count_bits",
    "dots",
    "fetch",
    "fetch_ones",
    "gather_dots",
    "hint",
    "keep_sampled",
    "lanes_in",
    "lanes_of",
    "lanes_out",
    "long_dots",
    "lowest",
    "make_corner_tile",
    "make_direct",
    "make_tile",
    "make_weighted_sum",
    "move",
    "multiply_at",
    "panel",
    "pivots",
    "substitute_backward",
    "substitute_forward",
    "subtract_at",
    "trial",
    "update_residuals",
]

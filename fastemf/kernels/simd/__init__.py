"""Operations on whole vectors: compiled, or in Python where the JIT is off."""

# ruff: noqa: F403
# mypy: disable-error-code="assignment"
from fastemf.kernels.compilation import INTERPRETED

if INTERPRETED:
    from fastemf.kernels.simd.reference import *
else:
    from fastemf.kernels.simd.direct import *
    from fastemf.kernels.simd.gram import *
    from fastemf.kernels.simd.observations import *
    from fastemf.kernels.simd.topk import *
    from fastemf.kernels.simd.triangles import *

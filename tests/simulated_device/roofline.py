"""How long an H100 is at one operation of torch, and how much of it is at work meanwhile: from shapes alone. Pure.

The longer of two: its arithmetic at what the card reaches in that number format, its bytes at what the memory carries.
A matrix product is cut into tiles of 128 by 128; a multiprocessor is at one tile at a time, so a product of few tiles
leaves most of them idle, and takes as long as one of as many tiles as there are multiprocessors. The figures are those
of data sheets, times what good kernels reach of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

SMS = 132
TILE = 128
TENSOR = {"bfloat16": 989e12, "float16": 989e12, "tf32": 495e12}  # operations a second, dense
SIMT = 67e12  # fp32 without tensor cores
BANDWIDTH = 3.35e12  # bytes a second
REACHED, MEMORY_REACHED = 0.7, 0.85
# Operands whose rows do not begin at multiples of 16 bytes cannot be fetched in whole: such kernels reach this part.
UNALIGNED = 0.4
ALIGNED = {"bfloat16": 8, "float16": 8, "tf32": 4}  # elements
SHORTEST = 2e-6  # seconds of any kernel
FILLS = SMS * 2048  # elements that keep every multiprocessor at work in what is no product


class Kernel(NamedTuple):
    """One kernel: seconds, and of that time the shares of multiprocessors, tensor cores and memory at work."""

    seconds: float
    occupancy: float
    tensor: float = 0.0
    memory: float = 0.0
    name: str = ""


# Of an H100, as its profiler tells them.
PRODUCTS = {
    "bfloat16": "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "float16": "nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT",
    "tf32": "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_kernel",
}
SIMT_PRODUCT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nn_align1>(int)"
CONVOLUTION = (
    "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_g1"
)
LAYOUT = "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true>(int)"
ATTENTION = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t> >(int)"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16> >(int)"


def product(m: int, n: int, k: int, batch: int = 1, dtype: str = "bfloat16", size: int = 2) -> Kernel:
    """`batch` products of m by k with k by n, computed in `dtype`, of elements of `size` bytes."""
    peak, is_tensor = TENSOR.get(dtype, SIMT), dtype in TENSOR
    reached = peak * REACHED
    if is_tensor and any(each % ALIGNED[dtype] for each in (n, k)):
        reached *= UNALIGNED
    tiles = batch * ceil(m / TILE) * ceil(n / TILE)
    arithmetic = ceil(tiles / SMS) * 2 * TILE * TILE * k / (reached / SMS)
    moved = batch * size * (m * k + k * n + m * n)
    found = _kernel(arithmetic, moved, min(1.0, tiles / SMS), 2 * batch * m * n * k / peak if is_tensor else 0.0)
    return found._replace(name=PRODUCTS.get(dtype, SIMT_PRODUCT))


def convolution(flops: float, moved: float, rows: int, channels: int, dtype: str, converts: float) -> list[Kernel]:
    """One convolution. Tensor cores take images row by row: others are converted first, and back.

    Args:
        moved: bytes of image, weights and result.
        rows, channels: of the result, as the matrix product that it is.
        converts: bytes that are laid out anew, read and written.
    """
    inner = max(1, round(flops / (2 * rows * channels)))
    found = [product(rows, channels, inner, dtype=dtype, size=0)._replace(memory=0.0, name=CONVOLUTION)]
    found[0] = found[0]._replace(seconds=max(found[0].seconds, moved / (BANDWIDTH * MEMORY_REACHED)))
    return [elementwise(converts, FILLS)._replace(name=LAYOUT), *found] if converts and dtype in TENSOR else found


def attention(flops: float, moved: float, blocks: int, dtype: str) -> Kernel:
    """A fused kernel: its matrix of scores is never written."""
    peak = TENSOR.get(dtype, SIMT)
    fill = min(1.0, blocks / SMS)
    return _kernel(flops / (peak * REACHED * max(fill, 1 / SMS)), moved, fill, flops / peak)._replace(name=ATTENTION)


def elementwise(moved: float, elements: int) -> Kernel:
    """Anything that is bound by memory."""
    return _kernel(0.0, moved, min(1.0, max(1 / SMS, elements / FILLS)), 0.0)._replace(name=ELEMENTWISE)


def _kernel(arithmetic: float, moved: float, fill: float, tensor: float) -> Kernel:
    transfer = moved / (BANDWIDTH * MEMORY_REACHED)
    seconds = max(SHORTEST, arithmetic, transfer)
    return Kernel(seconds, fill, min(1.0, tensor / seconds), min(1.0, moved / BANDWIDTH / seconds))


def of_many(sizes: Sequence[int], times: float) -> Kernel:
    """One kernel over many tensors, each byte of which passes so many times."""
    return elementwise(times * sum(sizes), sum(sizes) // 4)

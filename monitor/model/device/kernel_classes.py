"""The class of a kernel, a copy or an operator, by its name. Pure.

Names are those of CUDA libraries, torch and Triton, which say what a kernel does. The first pattern that is found
decides: a kernel that is the backward of an attention is attention, though it multiplies matrices.
"""

from __future__ import annotations

import re
from functools import lru_cache

MATRIX = "matrix product"
CONVOLUTION = "convolution"
ATTENTION = "attention"
NO_TENSOR_CORES = ", no tensor cores"
FP32, FP64 = ", fp32" + NO_TENSOR_CORES, ", fp64"
DIRECT_CONVOLUTION = CONVOLUTION + NO_TENSOR_CORES
LAYOUT = "layout change"
ELEMENTWISE = "elementwise"
CASTS = "casts and copies"
LOSS = "loss"
SOFTMAX = "softmax"
SORTING, SCAN, INDEXING = "sorting", "scan", "indexing"
OPTIMIZER = "optimizer"
REDUCTION, NORMALIZATION = "reduction", "normalization"
COPY_IN = "copy to the device"
COPY_OUT = "copy from the device"
COPY_ON = "copy on the device"
PAGEABLE = ", pageable"
COMMUNICATION = "communication"
MEMSET = "memset"
OTHER = "other"
HOST_COPIES = (COPY_IN, COPY_IN + PAGEABLE, COPY_OUT, COPY_OUT + PAGEABLE)  # over the bus, not by the device's cores
# What reads and writes memory and computes little: each such kernel is a pass over its tensors.
PASSES_OVER_MEMORY = (ELEMENTWISE, CASTS, COPY_ON, LAYOUT, REDUCTION, NORMALIZATION, SOFTMAX)

_KERNELS = (
    (r"nccl", COMMUNICATION),
    (r"Memcpy HtoD.*Pageable", COPY_IN + PAGEABLE),
    (r"Memcpy HtoD", COPY_IN),
    (r"Memcpy DtoH.*Pageable", COPY_OUT + PAGEABLE),
    (r"Memcpy DtoH", COPY_OUT),
    (r"Memcpy", COPY_ON),
    (r"Memset", MEMSET),
    (r"cudnn.*sdpa|sdpa.*cudnn", ATTENTION + ", cuDNN"),
    (r"flash|FlashAttn", ATTENTION + ", flash"),
    (r"fmha|mem_eff|AttentionKernel|PyTorchMemEffAttention", ATTENTION + ", memory-efficient"),
    (r"nchwToNhwc|nhwcToNchw|nchw.*transform|tensorTransform|transpose_readWrite", LAYOUT),
    (r"conv_depthwise|slow_conv|im2col|vol2col|col2im|convolve_sgemm|scudnn|_ffma_.*conv", DIRECT_CONVOLUTION),
    (r"conv|winograd|wgrad|dgrad|fprop|implicit_gemm", CONVOLUTION),
    (r"FusedAdam|FusedSgd|fused_adam|FusedOptimizer|adam_|sgd_|multi_tensor_apply|optimizer", OPTIMIZER),
    (r"nll_loss|cross_entropy|CrossEntropy|mse_loss|bce|LossForward|LossBackward|LogSoftMax|log_softmax|"
     r"softmax_warp_(for|back)ward<[^>]*, true, (true|false)>", LOSS),
    (r"[Ss]oft[Mm]ax", SOFTMAX),
    (r"layer_norm|LayerNorm|layernorm|batch_norm|batchnorm|bn_|group_norm|GroupNorm|RowwiseMoments|rms_norm|RMSNorm|"
     r"GammaBeta", NORMALIZATION),
    (r"embedding|EmbeddingBag|compute_grad_weight", "embedding"),
    (r"[Rr]adix|[Ss]ort|topk|TopK|bitonic", SORTING),
    (r"scan|Scan", SCAN),
    (r"index|Index|gather|Gather|scatter|Scatter|DeviceSelect|nonzero", INDEXING),
    (r"RNN|LSTM|GRU|GENERIC_elementWise", "recurrence"),
    (r"gemm|gemv|cutlass|cublas|xmma|nvjet|splitK|wgmma|s16816|s1688|h884|matmul|::dot_kernel", MATRIX),
    (r"triton_poi|triton_", ELEMENTWISE + ", compiled"),
    (r"reduce|Reduce|cub::", REDUCTION),
    (r"direct_copy|float16_copy|float8|copy_kernel|CatArrayBatched", CASTS),
    (r"elementwise|Elementwise|fill|distribution|dropout|masked|where", ELEMENTWISE),
)  # fmt: skip
_OPERATORS = (
    (r"DataLoader", "loading"),
    (r"scaled_dot_product|flash_attention|efficient_attention|attention", "attention"),
    (r"conv|mkldnn_convolution", CONVOLUTION),
    (r"Optimizer\.|addcdiv|addcmul|lerp|_foreach|fused_adam|fused_sgd", "optimizer"),
    (r"nll_loss|cross_entropy|mse_loss|NllLoss|MseLoss", "loss"),
    (r"[Ss]oft[Mm]ax", "softmax"),
    (r"_norm|Norm", "normalization"),
    (r"embedding|Embedding|index_select", "embedding"),
    (r"aten::(add)?(mm|bmm|baddbmm|addmm|addbmm|addmv|mv|matmul|linear|einsum|dot)\b", MATRIX),
    (r"lstm|gru|rnn", "recurrence"),
    (r"aten::(copy_|to|_to_copy|clone|contiguous|cat|stack|pad|constant_pad)", "copies in memory"),
    (r"aten::(sum|mean|max|min|argmax|norm|cumsum|var|std|all|any)\b", "reduction"),
    (r"aten::(index|gather|scatter|sort|topk|nonzero|masked_select|unique|where)", "indexing"),
    (r"aten::(item|_local_scalar_dense|is_nonzero)", "reading values"),
    (r"evaluate_function|AccumulateGrad|Backward0|Backward1", "autograd"),
    (r"aten::", ELEMENTWISE),
)

_kernels = [(re.compile(pattern), name) for pattern, name in _KERNELS]
_operators = [(re.compile(pattern), name) for pattern, name in _OPERATORS]
# The type of a matrix product, where its name says it. An H100's names: nvjet_hsh, nvjet_tst (bf16), s1688tf32, sgemm.
_TYPES = (
    (re.compile(r"e4m3|e5m2|fp8|f8"), "fp8"),
    (re.compile(r"bf16|bfloat16|_tst_|nvjet_t|16816gemm_bf"), "bf16"),
    (re.compile(r"tf32|s1688gemm(?!_f16)|nvjet_ss_tf32"), "tf32"),
    (re.compile(r"f16|fp16|half|hgemm|h16816|_hsh_|_hhh_|h884|nvjet_h"), "fp16"),
    (re.compile(r"sgemm|ffma|simt|f32f32|gemvNSP|gemv2|float"), "fp32, no tensor cores"),
    (re.compile(r"dgemm|double|f64"), "fp64"),
)


@lru_cache(maxsize=4096)
def class_of(name: str, device: str) -> str:
    """Return the class of a row of a trace.

    Args:
        name: of a kernel, copy or memset; of an operator where `device` is `cpu`.
        device: cuda | cpu, as in the trace.
    """
    patterns = _operators if device == "cpu" else _kernels
    found = next((kind for pattern, kind in patterns if pattern.search(name)), OTHER)
    if found == MATRIX and device != "cpu":
        number = next((kind for pattern, kind in _TYPES if pattern.search(name)), None)
        return f"{MATRIX}, {number}" if number else MATRIX
    return found


_FORMATS = (
    (re.compile(r"\bdouble\b"), "float64"),
    (re.compile(r"BFloat16|bfloat16"), "bfloat16"),
    (re.compile(r"\bHalf\b|__half"), "float16"),
    (re.compile(r"\bfloat\b"), "float32"),
    (re.compile(r"\blong\b"), "int64"),
)


@lru_cache(maxsize=4096)
def type_of(name: str) -> str:
    """Return the number format that a kernel's name has first; empty where it has none."""
    found = [(match.start(), kind) for pattern, kind in _FORMATS if (match := pattern.search(name))]
    return min(found)[1] if found else ""


_OPERATION = re.compile(r"CUDAFunctor_(\w+)|(\w+?)Functor\b|(\w+?)_kernel_(?:cuda|impl)\b|(\w+?)(?:CUDA)?KernelImpl\b")
_WRAPPERS = ("Binary", "AUnary", "BUnary", "gpu", "BinaryBase")


@lru_cache(maxsize=4096)
def label_of(name: str) -> str:
    """Return what people read in place of a kernel's name: of an elementwise one its operation and number format."""
    if "elementwise" not in name:
        return name
    found = ("".join(filter(None, match.groups())) for match in _OPERATION.finditer(name))
    operation = next((each for each in found if each not in _WRAPPERS), None)
    return name if operation is None else f"elementwise {operation.lower()} {type_of(name)}".rstrip()

"""The variables of the environment that are recorded, by a list of names."""

from __future__ import annotations

import os
from typing import Dict

from trainhooks.protocol.limits import clean
from trainhooks.protocol.secrets import mask

# They explain speed or identity, and hold no secrets.
ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "OMP_NUM_THREADS",
    "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "NCCL_DEBUG",
    "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE", "TORCH_LOGS",
    "NVIDIA_TF32_OVERRIDE", "HF_HUB_OFFLINE", "CONDA_DEFAULT_ENV", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_NTASKS",
    "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_RESTART_COUNT", "SLURM_CLUSTER_NAME", "TORCHELASTIC_RUN_ID", "MASTER_ADDR",
    "MASTER_PORT",
    "KERAS_BACKEND", "JAX_PLATFORMS", "TORCH_DISTRIBUTED_DEBUG",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)  # fmt: skip


def recorded() -> Dict[str, str]:
    """Return the variables of `ENVIRONMENT` that this process has, cleaned."""
    return {name: clean(mask(os.environ[name]), 256) for name in ENVIRONMENT if name in os.environ}

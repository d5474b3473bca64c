"""The facts of a run: what `hello` and `facts` lines tell of a program, its settings and what was found in it.

On the wire facts are a JSON table of the names below; nested types are nested tables. Later values win, name by name; a
nested table is merged with the one before, one level deep. Any other name may be sent, too: readers show it as it is.

None is unknown, as is what is left out; where a count cannot be None, that is 0. No number is below 0; sizes are bytes,
shares are fractions of 1. A reader takes a value of another type as unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Union

# Trainings may run on Python 3.9, and the reader uses these annotations at run time: no `X | Y`, no `list[X]`.


def sent_as(key: str, null: Any = None) -> Any:
    """Return a field that is sent as `key`, where a null, unlike no value at all, means `null`."""
    return field(default=None, metadata={"key": key, "null": null})


@dataclass(frozen=True)
class PythonTools:
    """What Python itself calls in the training thread; only what is on is sent."""

    trace: Optional[bool] = None  # at each line: a debugger, coverage
    profile: Optional[bool] = None  # at each function
    tracemalloc: Optional[bool] = None  # at each allocation


@dataclass(frozen=True)
class GpuMemory:
    """The allocator's figures of the device on which most is reserved, bytes. Counts are rounded down."""

    total: Optional[int] = None  # of the device
    allocated: Optional[int] = None  # in tensors
    reserved: Optional[int] = None  # from the driver
    peak_allocated: Optional[int] = None
    peak_reserved: Optional[int] = None
    retries: Optional[int] = None  # allocations that came to pass once the cache was freed
    ooms: Optional[int] = None


@dataclass(frozen=True)
class Torch:
    """Settings of torch that affect speed."""

    threads: Optional[int] = None
    detect_anomaly: Optional[bool] = None
    profiler: Optional[bool] = None  # whether one runs
    matmul_precision: Optional[str] = None  # of products in fp32: highest | high | medium
    deterministic: Optional[bool] = None  # whether algorithms must be
    cudnn_benchmark: Optional[bool] = None
    default_dtype: Optional[str] = None  # "torch.float32"
    cuda: Optional[str] = sent_as("cuda", null="")  # the version that torch is built for; "": none, sent as null
    gpu_memory: GpuMemory = GpuMemory()
    graph_captures: Optional[int] = None  # of CUDA graphs, rounded down to a power of two


@dataclass(frozen=True)
class Collections:
    """Collections of all of Python's objects."""

    full: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class BusyThread:
    """A thread beside the one that trains, of which the others wait for their turn to run Python."""

    name: Optional[str] = None
    share: Optional[float] = None  # of one core
    late: Optional[float] = None  # seconds that another thread waits for its turn, the median
    place: Optional[str] = None  # where it was last


@dataclass(frozen=True)
class Compile:
    """What torch.compile did so far."""

    graphs: Optional[int] = None
    seconds: Optional[float] = None
    graph_breaks: Optional[int] = None
    recompiles: Optional[int] = None
    reasons: List[str] = field(default_factory=list)  # of recompilations and graph breaks
    fallback: Optional[bool] = None  # whether it gave up on a function, which then runs eagerly


@dataclass(frozen=True)
class Download:
    """Files from the Hugging Face hub."""

    files: Optional[int] = None
    bytes: Optional[int] = None
    seconds: Optional[float] = None


@dataclass(frozen=True)
class Config:
    """Settings of the program or its framework: `init(config=...)`, TrainingArguments, a Trainer's own.

    A program may send any names; these are the ones with a meaning here.
    """

    bf16: Optional[bool] = None
    fp16: Optional[bool] = None
    tf32: Optional[bool] = None
    precision: Optional[str] = None  # Lightning's: "bf16-mixed", "32-true"
    optim: Optional[str] = None  # transformers' name of the optimizer
    use_cpu: Optional[bool] = None
    no_cuda: Optional[bool] = None
    torch_compile: Optional[bool] = None
    packing: Optional[bool] = None  # of several sequences into one
    padding_free: Optional[bool] = None
    parallelism_config: Optional[Any] = None
    gradient_accumulation_steps: Optional[int] = None
    accumulate_grad_batches: Optional[int] = None
    dataloader_num_workers: Optional[int] = None
    dataloader_prefetch_factor: Optional[int] = None
    dataloader_persistent_workers: Optional[bool] = None


@dataclass(frozen=True)
class Loader:
    """Settings of the training's DataLoader, named like TrainingArguments."""

    dataloader_num_workers: Optional[int] = None
    dataloader_pin_memory: Optional[bool] = None
    dataloader_prefetch_factor: Optional[int] = None
    dataloader_persistent_workers: Optional[bool] = None
    batch_size: Optional[int] = None


@dataclass(frozen=True)
class Accelerate:
    """Settings of an Accelerator."""

    mixed_precision: Optional[str] = None  # no | fp16 | bf16 | fp8
    num_processes: Optional[int] = None
    gradient_accumulation_steps: Optional[int] = None  # where it is not 1
    distributed_type: Optional[str] = None


@dataclass(frozen=True)
class Dataset:
    train_samples: Optional[int] = None


@dataclass(frozen=True)
class Generate:
    """Settings of a call of generate() without a cache, or that there is none in a loop of the program's own."""

    use_cache: Optional[bool] = None
    set_by: Optional[str] = None  # where that is set, in words


@dataclass(frozen=True)
class Plan:
    """What bounds the training."""

    epochs: Optional[int] = None
    epochs_name: Optional[str] = None  # of the program's argument
    steps: Optional[int] = None  # that may count batches or updates
    steps_name: Optional[str] = None
    updates: Optional[int] = None  # of the optimizer, by the loops around them


@dataclass(frozen=True)
class Training:
    """Which training of its process begins; of one process after another, readers tell them apart themselves."""

    number: Optional[int] = None  # from 1; 1 after another number: they were parts of one after all
    settings: Dict[str, Any] = field(default_factory=dict)  # numbers and switches, the optimizer's among them


@dataclass(frozen=True)
class TrainedModel:
    """The trained model. Sizes count elements; fields from `model_type` on are named like Hugging Face's."""

    kind: Optional[str] = sent_as("class")
    parameters: Optional[int] = None
    trainable_parameters: Optional[int] = None
    dtypes: Dict[str, int] = field(default_factory=dict)  # "float32" -> parameters
    sharded: Optional[bool] = None  # over the ranks, as DTensors
    data_parallel: Optional[int] = None  # ranks of DDP that hold it, each with batches of its own
    attention: Optional[str] = None  # eager | sdpa | flash_attention_2 ...
    quantization: Optional[str] = None
    peft: Optional[str] = None  # the kind of adapters
    gradient_checkpointing: Optional[bool] = None
    matmul_parameters: Optional[int] = None  # those in matrix products, where a producer knows
    model_type: Optional[str] = None
    hidden_size: Optional[int] = None
    head_dim: Optional[int] = None
    num_hidden_layers: Optional[int] = None
    num_attention_heads: Optional[int] = None
    vocab_size: Optional[int] = None
    tie_word_embeddings: Optional[bool] = None
    n_positions: Optional[int] = None
    num_local_experts: Optional[int] = None
    num_experts: Optional[int] = None
    n_routed_experts: Optional[int] = None
    is_encoder_decoder: Optional[bool] = None
    sliding_window: Optional[int] = None


TORCH_DECIDES = "None"  # neither True nor False was set; sent as null


@dataclass(frozen=True)
class Optimizer:
    """The largest optimizer. `fused` and `foreach` are unknown where it has no such setting."""

    kind: Optional[str] = sent_as("class")
    parameters: Optional[int] = None
    tensors: Optional[int] = None
    dtypes: Dict[str, int] = field(default_factory=dict)  # "float32" -> parameters
    device: Optional[str] = None  # of its first parameter: cpu | cuda ...
    fused: Union[bool, str, None] = sent_as("fused", null=TORCH_DECIDES)
    foreach: Union[bool, str, None] = sent_as("foreach", null=TORCH_DECIDES)


@dataclass(frozen=True)
class Held:
    """Bytes of GPU memory that one process holds from step to step, as far as its optimizers show."""

    weights: Optional[int] = None
    gradients: Optional[int] = None  # while they are kept
    optimizer: Optional[int] = None  # its state


@dataclass(frozen=True)
class ModelCopy:
    """Calls of a copy of the trained model whose own weights stay as they are."""

    calls: int = 0
    repeated: int = 0  # on inputs that it was given before
    mixed: int = 0  # on inputs of which it was given some before
    rounds: int = 0  # times that new inputs followed
    repeated_seconds: float = 0.0
    watched_seconds: float = 0.0  # from the first of the calls to the last


@dataclass(frozen=True)
class GeneratorWeights:
    """A copy of the trained model that generates."""

    updated: int = 0  # calls of generate() before which the trained weights had changed
    unchanged: int = 0  # those of them before which the copy's had not


@dataclass(frozen=True)
class WithoutUpdate:
    """Gradients that were computed before any update."""

    passes: int = 0  # backward passes; 0: there was an update since
    optimizers: int = 0  # alive
    compared: int = 0  # parameters whose numbers are the first ones; 0: they were not looked at


@dataclass(frozen=True)
class TargetNetwork:
    """A copy that began with the weights of a trained model, and is called to learn from."""

    unchanged: int = 0  # looks at which it had them still, and the trained model had moved on
    alike: int = 0  # at which it was given what the trained model learns on, as a reference is


@dataclass(frozen=True)
class Batch:
    """A batch of the loader, in host memory."""

    bytes: Optional[int] = None
    pinned: Optional[bool] = None


@dataclass(frozen=True)
class Pass:
    """The begin of a pass over the training's loader."""

    number: Optional[int] = None  # from 1
    batches: Optional[int] = None
    late: Optional[bool] = None  # reported at the end of the program, not at its begin


@dataclass(frozen=True)
class PrintedPosition:
    """Where the program prints that it is. All count from 1."""

    step: Optional[int] = None  # since the program began
    total: Optional[int] = None
    epoch: Optional[int] = None
    epochs: Optional[int] = None
    batch: Optional[int] = None  # of the epoch
    batches: Optional[int] = None


@dataclass(frozen=True)
class Environments:
    """Environments of reinforcement learning."""

    count: Optional[int] = None
    processes: Optional[int] = None  # beside the training's own
    on_host: Optional[bool] = None


@dataclass(frozen=True)
class TimeLimit:
    """Programs that were ended at their time limit (subprocess.TimeoutExpired)."""

    hits: int = 0
    own: int = 0  # in the training's thread
    seconds: float = 0.0  # in which any of them ran
    limit: float = 0.0  # seconds, of the last


# The operations of one call of the model early in the run


@dataclass(frozen=True)
class Sync:
    """Calls that wait for the device."""

    place: str = ""
    call: str = ""
    count: int = 0


@dataclass(frozen=True)
class Conv:
    """Convolutions."""

    count: int = 0
    share: float = 0.0  # of the operations forward
    channels_last: Optional[int] = None  # how many took their input so
    largest: Optional[str] = None  # its shapes
    tf32: Optional[bool] = None  # whether those in fp32 may run as TF32


@dataclass(frozen=True)
class Misaligned:
    """Matrix products whose sizes do not fit tensor cores."""

    share: float = 0.0  # of the operations
    shapes: List[str] = field(default_factory=list)  # rows x columns x inner size


@dataclass(frozen=True)
class WrittenOut:
    """Attention scores that were written to memory."""

    count: int = 0  # of softmax calls
    bytes: int = 0
    length: Optional[int] = None  # of the sequences
    place: Optional[str] = None


@dataclass(frozen=True)
class Copies:
    """Copies between host (h) and device (d), in bytes and calls."""

    h2d: Optional[int] = None
    h2d_pageable: Optional[int] = None
    h2d_calls: Optional[int] = None
    d2h: Optional[int] = None
    d2h_calls: Optional[int] = None
    places: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Census:
    """The operations of one call of the model in training, and of the backward pass that belongs to it."""

    step: Optional[int] = None
    calls: Optional[int] = None  # of torch
    launches: Optional[int] = None  # of kernels, about
    flops_forward: float = 0.0
    flops_backward: float = 0.0
    flops_attention: float = 0.0  # of both, what grows with the square of the length
    flops_recompute: Optional[float] = None  # of gradient checkpointing
    flops_by_dtype: Dict[str, float] = field(default_factory=dict)  # "bfloat16" -> FLOPs of both
    flops_unknown: Optional[str] = None  # why they are
    batch: Optional[int] = None  # samples
    input: Optional[str] = None  # its shape: "8x512"
    length: Optional[int] = None  # positions of a sample
    positions: Optional[int] = None  # of the batch
    sdpa: Optional[int] = None  # calls of a fused attention
    syncs: List[Sync] = field(default_factory=list)  # the most frequent first
    conv: Conv = Conv()
    misaligned: Misaligned = Misaligned()
    attention_written_out: WrittenOut = WrittenOut()
    copies: Copies = Copies()


@dataclass(frozen=True)
class NoGradient:
    """Steps in which no parameter of an optimizer had a gradient."""

    steps: int = 0
    parameters: int = 0  # elements
    frozen: int = 0  # of these, without requires_grad
    assigned: int = 0  # steps before which the program had changed them itself


@dataclass(frozen=True)
class KeptGradients:
    """Steps whose gradients were added to those of the step before."""

    steps: int = 0
    checked: int = 0


@dataclass(frozen=True)
class ZeroRate:
    """Steps in a row, up to the last, with a learning rate of zero or nearly so."""

    steps: int = 0
    highest: Optional[float] = None  # learning rate before
    since: Optional[float] = None  # seconds since the first check
    until: Optional[float] = None
    of: Optional[int] = None  # optimizers, where it is one's of several, from the start


@dataclass(frozen=True)
class EvalMode:
    """Steps in a row with a model in evaluation mode."""

    steps: int = 0
    trained: Optional[bool] = None  # whether it was in training mode before
    modules: List[str] = field(default_factory=list)  # classes that behave differently so
    count: int = 0  # of such modules


@dataclass(frozen=True)
class EvalGradients:
    """Calls in evaluation mode that recorded gradients, without a backward pass."""

    calls: int = 0
    times: int = 0  # evaluations that they belong to


@dataclass(frozen=True)
class Retained:
    """Backward passes with retain_graph=True over graphs that no later pass used."""

    steps: int = 0


@dataclass(frozen=True)
class UnusedGradients:
    """Parameters without an optimizer that get gradients. Counted in elements, but for tensors and nodes."""

    tensors: int = 0
    cut: int = 0  # in parts of the graph that no trained parameter needs
    beside: int = 0  # elsewhere
    trained: int = 0  # of the optimizers
    nodes: int = 0  # of the graph
    needless: int = 0  # of these, what no trained parameter needs


@dataclass(frozen=True)
class Embedding:
    """The largest embedding with a dense gradient."""

    rows: int = 0
    width: int = 0
    elements: int = 0
    trained: int = 0  # elements of the whole model
    touched: Optional[float] = None  # share of its rows with a gradient in a step


@dataclass(frozen=True)
class GradientSyncs:
    """Averages over the ranks of DDP."""

    steps: int = 0
    passes: int = 0  # backward
    averaged: int = 0
    unneeded: int = 0  # of these, before the last of a step
    comm: Optional[float] = None  # seconds of one
    overlap: Optional[float] = None  # of these, beside the backward pass


@dataclass(frozen=True)
class Updates:
    """What the checked steps show of gradients, learning rates and modes. Left out: not found."""

    rollouts: Optional[bool] = None  # whether it calls the model without gradients before each step
    optimizers: Optional[int] = None  # where there are several
    no_gradient: NoGradient = NoGradient()
    kept_gradients: KeptGradients = KeptGradients()
    zero_rate: ZeroRate = ZeroRate()
    eval_mode: EvalMode = EvalMode()
    eval_gradients: EvalGradients = EvalGradients()
    retained: Retained = Retained()
    unused_gradients: UnusedGradients = UnusedGradients()
    embedding: Embedding = Embedding()
    gradient_syncs: GradientSyncs = GradientSyncs()


@dataclass(frozen=True)
class Forwards:
    """Calls of the model in training mode."""

    calls: int = 0
    repeated: int = 0  # on the input of the call before, without a backward pass in between
    without_gradients: int = 0  # other calls, on the input of the last of these


@dataclass
class RunFacts:
    """All facts of a run, or of one line. `table` holds them as they were sent, those without a type here, too."""

    table: Dict[str, Any] = field(default_factory=dict)

    command: List[str] = field(default_factory=list)  # without secrets
    cwd: Optional[str] = None
    git_commit: Optional[str] = None
    cpus: Optional[int] = None  # that the process may use
    environment: Dict[str, str] = field(default_factory=dict)  # variables of an allow-list
    versions: Dict[str, str] = field(default_factory=dict)  # of the libraries that are loaded
    python_version: Optional[str] = sent_as("python")
    python: PythonTools = PythonTools()  # in place of the version, once an optimizer steps
    tags: Dict[str, str] = field(default_factory=dict)  # of `trainmon run --tag`, in reports
    devices: List[str] = field(default_factory=list)  # UUIDs of the GPUs in use
    device_clock: Optional[str] = None  # on | off: why
    tracing: Optional[str] = None  # likewise, of traces
    control: Optional[str] = None  # off: why nothing can be asked of the process
    torch: Torch = Torch()
    collections: Collections = Collections()
    busy_thread: BusyThread = BusyThread()
    compile: Compile = Compile()
    download: Download = Download()

    framework: Optional[str] = None  # transformers | lightning
    config: Config = Config()
    loader: Loader = Loader()
    accelerate: Accelerate = Accelerate()
    autocast: Optional[str] = None  # a dtype; "off": never used so far
    epochs: Optional[float] = None  # planned, by a framework
    dataset: Dataset = Dataset()
    generate: Generate = Generate()
    plan: Optional[Plan] = None
    training: Training = Training()

    model: TrainedModel = TrainedModel()
    optimizer: Optimizer = Optimizer()
    held: Held = Held()
    model_copy: ModelCopy = ModelCopy()
    generator_weights: GeneratorWeights = GeneratorWeights()
    target_network: TargetNetwork = TargetNetwork()
    without_update: WithoutUpdate = WithoutUpdate()

    batch: Batch = Batch()
    passes: Optional[Pass] = None
    loader_passes: Optional[Pass] = None  # in its place, where a framework knows its own epochs
    printed: Optional[PrintedPosition] = None
    environments: Environments = field(default=Environments(), metadata={"key": "environment"})
    time_limit: TimeLimit = TimeLimit()
    job_left: Optional[float] = None  # seconds that the scheduler lets the job run on, when the recorder said so
    forwards: Forwards = Forwards()
    ops: Census = Census()
    updates: Updates = Updates()

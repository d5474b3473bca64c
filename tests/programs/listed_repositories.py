"""More programs of public repositories at their commits: see `listed.py`."""

from __future__ import annotations

from tests.programs.program import Own, Program, Source

# The process begins without W&B's service, and nothing is sent.
OFFLINE = ("WANDB_MODE", "disabled")
STEP_LOSS = r"step \d+: train loss ([\d.]+)"

REPOSITORIES = (
    Program(
        "cs336-sweep",  # three trainings of 30 steps, one after another, in one process
        "train.py -m optimizer.max_lr=1e-3,3e-3,1e-2 logger=tensorboard training.is_compile=false training.max_iters=30"
        " training.batch_size=8 training.log_interval=1 training.eval_interval=10 training.eval_iters=2"
        " model.vocab_size=300 model.context_length=32 model.d_model=64 model.num_layers=2 model.num_heads=4"
        " model.d_ff=128 model.remove_rope=true",
        steps=90,
        source=Source(
            "donglinkang2021/cs336-assignment1-basics",
            "c7bd4a373c1c56fc6cb02cc3f848c13d02a2b825",
            ("train.py", "conf", "cs336_basics", "hf_tokenizer"),
        ),
        modules=("hydra", "einops", "tokenizers", "tensorboard", "pandas"),
        data="tinystories",
        own=(Own("loss", r"Iter \d+: Train loss=([\d.]+)", "metrics|loss|last", within=0.001),),
    ),
    Program(
        "llm.c-gpt2",  # in C, built with gcc: it only prints
        "./train_gpt2",
        steps=41,  # its loop runs from 0 to 40
        source=Source("karpathy/llm.c", "f1e2ace651495b74ae22d45d1723443fd00ecd3a", ("train_gpt2.c", "llmc")),
        data="llmc",
        loss=STEP_LOSS,
        own=(
            Own("loss", STEP_LOSS, "metrics|train_loss|last"),
            Own(
                "step s",
                r"step \d+: .*took ([\d.]+) ms",
                "step_mean",
                pick="mean",
                scale=1e-3,
                within=0.05,
            ),
        ),
    ),
    Program(
        "makemore",
        "makemore.py -i names.txt -n 0 --max-steps 200 --n-layer 2",
        steps=200,
        source=Source("karpathy/makemore", "988aa59e4d8fefa526d06f3b453ad116258398d4", ("makemore.py",)),
        modules=("tensorboard",),
        data="names",
        loss=r"\| loss ([\d.]+)",
        # It prints each tenth step's time: on a crowded machine their median is not that of all.
        own=(Own("step s", r"step time ([\d.]+)ms", "step_median", pick="median", scale=1e-3, floor=0.005),),
    ),
    Program(
        "x-transformers-enwik8",
        "train_enwik8.py --num_batches=12 --batch_size=1 --gradient_accumulate_every=2 --seq_len=64 --cpu",
        steps=12,
        source=Source(
            "lucidrains/x-transformers",
            "9252ed7838021ee61e6c5be0930b3a9a88efdf06",
            ("train_enwik8.py", "x_transformers"),
        ),
        modules=("einops", "wandb", "fire", "accelerate"),
        data="enwik8",
        environment=(OFFLINE,),
        # It prints the loss of the second of its two batches; the step's is the mean of both.
        own=(Own("loss", r"training loss: ([\d.]+)", "metrics|loss|last", within=0.15),),
    ),
    Program(
        "unet-carvana",  # its bar counts images, two a step
        "train.py --epochs 2 --batch-size 2 --scale 1.0 --validation 25",
        steps=18,
        source=Source(
            "milesial/Pytorch-UNet",
            "21d7850f2af30a9695bbeea75f3136aa538cfc4a",
            ("train.py", "evaluate.py", "unet", "utils"),
        ),
        modules=("wandb", "torchvision"),
        data="carvana",
        environment=(OFFLINE,),
        own=(Own("loss", r"loss \(batch\)=([\d.]+)", "metrics|loss|last", within=0.001),),
    ),
    Program(
        "nanochat-base",
        "-m scripts.base_train --depth=2 --head-dim=32 --max-seq-len=64 --device-batch-size=2 --eval-tokens=256"
        " --core-metric-every=-1 --total-batch-size=256 --num-iterations=30 --device-type=cpu",
        steps=30,
        source=Source(
            "karpathy/nanochat", "92d63d4e8bb4df75c3b71618f31ddde2378b2bcd", ("nanochat", "scripts", "tasks")
        ),
        modules=("wandb", "tiktoken", "rustbpe", "pyarrow"),
        data="nanochat",
        loss=r"step \d+/\d+ .*loss: ([\d.]+)",
        environment=(("NANOCHAT_BASE_DIR", "base"), OFFLINE),
        own=(
            Own(
                "step s",
                r"step \d+/\d+ .*dt: ([\d.]+)ms",
                "step_median",
                pick="median",
                scale=1e-3,
                within=0.05,
                floor=0.002,
            ),
        ),
    ),
)

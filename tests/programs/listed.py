"""The public programs, at their commits or as drivers of a package's public API, made small by their own options."""

from __future__ import annotations

from tests.programs.listed_packages import PACKAGES
from tests.programs.listed_repositories import REPOSITORIES
from tests.programs.program import Own, Program, Source

NANOGPT = Source(
    "karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291", ("train.py", "model.py", "configurator.py")
)
MINGPT = Source("karpathy/minGPT", "37baab71b9abea1b76ab957409a1cc2fbfba8a26", ("mingpt", "projects"))
CLEANRL = Source("vwxyzjn/cleanrl", "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb", ("cleanrl", "cleanrl_utils"))
EXAMPLES = "77f55b912142e11fcfdf5b530231fb9c52f181e8"
NANO_WORDS = (
    "train.py --device=cpu --dtype=float32 --dataset=fake --eval_iters=2 --eval_interval=1000 --log_interval=1"
    " --block_size=32 --batch_size=8 --n_layer=2 --n_head=2 --n_embd=64 --dropout=0.0 --max_iters=40"
    " --warmup_iters=5"
)
NANO_LOSS = r"iter \d+: loss ([\d.]+)"


def _examples(folder: str, *more: str) -> Source:
    return Source("pytorch/examples", EXAMPLES, (folder, *more))


def _nano(name: str, *words: str) -> Program:
    return Program(
        name,
        " ".join((NANO_WORDS, *words)),
        steps=41,  # its loop ends when the number of the next one is larger than max_iters
        source=NANOGPT,
        modules=("numpy",),
        data="nanogpt",
        loss=NANO_LOSS,
        own=(
            Own("loss", NANO_LOSS, "metrics|loss|last"),
            Own("step s", r"iter \d+: .*time ([\d.]+)ms", "step_median", pick="median", scale=1e-3, within=0.05),
        ),
    )


GENERATION = Own("generation s", r"generation took ([\d.]+) s", "generation_seconds", within=0.05)
LM = "word_language_model"
LM_FILES = tuple(f"{LM}/{name}.py" for name in ("main", "data", "model"))
LM_WORDS = f"{LM}/main.py --data data/fake --epochs 3 --log-interval 5 --emsize 32 --nhid 32"
# 13,200 tokens in 20 columns, 35 rows at a time: 19 batches an epoch.
LM_STEPS = 57

PROGRAMS = (
    _nano("nanogpt-eager", "--compile=False", "--gradient_accumulation_steps=1"),
    _nano("nanogpt-accumulated", "--compile=False", "--gradient_accumulation_steps=4"),
    _nano("nanogpt-compiled", "--compile=True", "--gradient_accumulation_steps=1"),
    Program(
        "mingpt-chargpt",
        "projects/chargpt/chargpt.py --trainer.max_iters=101 --trainer.num_workers=0 --model.model_type=gpt-nano",
        steps=101,
        source=MINGPT,
        data="chargpt",
        loss=r"train loss ([\d.]+)",
        environment=(("PYTHONPATH", "."),),
        own=(Own("loss", r"train loss ([\d.]+)", "metrics|loss|last"),),
    ),
    Program(
        "mingpt-adder",
        "projects/adder/adder.py --trainer.max_iters=101 --trainer.num_workers=0 --model.model_type=gpt-nano",
        steps=101,
        source=MINGPT,
        loss=r"train loss ([\d.]+)",
        environment=(("PYTHONPATH", "."),),
        own=(Own("loss", r"train loss ([\d.]+)", "metrics|loss|last"),),
    ),
    Program(
        "word-lm-lstm-by-hand",  # it has no optimizer: weights are updated by a loop over the parameters
        LM_WORDS,
        steps=LM_STEPS,
        source=Source("pytorch/examples", EXAMPLES, LM_FILES),
        data="corpus",
        loss=r"\| loss\s+([\d.]+)",
    ),
    Program(
        "word-lm-transformer-adamw",
        LM_WORDS + " --model Transformer --use-optimizer --lr 0.001",
        steps=LM_STEPS,
        source=Source("pytorch/examples", EXAMPLES, LM_FILES),
        data="corpus",
        loss=r"\| loss\s+([\d.]+)",
    ),
    Program(
        "cleanrl-ppo",
        "cleanrl/ppo.py --total-timesteps 2048",
        steps=64,  # 4 iterations of 4 epochs of 4 minibatches
        env_steps=2048,
        source=CLEANRL,
        modules=("gymnasium", "tyro", "tensorboard"),
        loss=r"episodic_return=(\S+)",
    ),
    Program(
        "cleanrl-dqn",
        "cleanrl/dqn.py --total-timesteps 1500 --learning-starts 500 --train-frequency 10",
        steps=99,  # at 510, 520, ... 1490
        env_steps=1491,
        source=CLEANRL,
        modules=("gymnasium", "tyro", "tensorboard", "stable_baselines3"),
        environment=(("PYTHONPATH", "."),),
        loss=r"episodic_return=(\S+)",
    ),
    Program(
        "mnist",
        "main.py --epochs 2 --no-accel --batch-size 32 --log-interval 1",
        steps=40,
        source=_examples("mnist"),
        folder="mnist",
        modules=("torchvision",),
        data="mnist",
        loss=r"Loss: ([\d.]+)",
        own=(Own("loss", r"Loss: ([\d.]+)", "metrics|loss|last", within=0.001),),
    ),
    Program(
        "vae",
        "main.py --epochs 2 --no-accel --batch-size 32 --log-interval 1",
        steps=40,
        source=_examples("vae"),
        folder="vae",
        modules=("torchvision",),
        data="mnist",
        loss=r"Loss: ([\d.]+)",
    ),
    Program(
        "mnist-rnn",
        "main.py --epochs 2 --batch-size 32 --log-interval 1",
        steps=40,
        source=_examples("mnist_rnn"),
        folder="mnist_rnn",
        modules=("torchvision",),
        data="mnist",
        loss=r"Loss: ([\d.]+)",
    ),
    Program(
        "siamese",
        "main.py --epochs 1 --no-accel --batch-size 32 --log-interval 1",
        steps=20,
        source=_examples("siamese_network"),
        folder="siamese_network",
        modules=("torchvision",),
        data="mnist",
        own=(Own("loss", r"Loss: ([\d.]+)", "metrics|loss|last", within=0.001),),  # its pairs are drawn without a seed
    ),
    Program(
        "dcgan",
        "main.py --dataset fake --batchSize 64 --imageSize 64 --ngf 4 --ndf 4 --niter 1 --workers 1 --manualSeed 1",
        steps=16,  # 1,000 images by 64: passes of its loop, in each of which two optimizers step
        source=_examples("dcgan"),
        folder="dcgan",
        modules=("torchvision",),
        loss=r"Loss_D: ([\d.]+)",
    ),
    Program(
        "imagenet-folder",
        "main.py -a resnet18 --epochs 2 -b 8 -p 1 -j 1 --no-accel images",
        steps=12,
        source=_examples("imagenet"),
        folder="imagenet",
        modules=("torchvision",),
        data="imagenet",
        own=(
            # Its timer runs while it prints the line of the step before: a millisecond or two.
            Own("data s", r"Epoch: .*Data\s+([\d.]+) \(", "data_seconds", pick="mean", within=0.05, floor=0.002),
        ),
    ),
    Program(
        "timm-train",
        "train.py --data-dir images --model resnet18 --num-classes 4 --img-size 64 -b 8 --epochs 2 --warmup-epochs 0"
        " --device cpu --workers 1 --log-interval 1",
        steps=12,
        source=Source(
            "huggingface/pytorch-image-models", "aa4b5850c1543fa488abf260f18390eda46cf85d", ("train.py", "timm")
        ),
        modules=("torchvision",),
        data="imagenet",
        loss=r"Train: .*Loss: ([\d.]+)",
        own=(
            # Likewise: its timer runs while it logs.
            Own("data s", r"Train: .*Data: ([\d.]+) \(", "data_seconds", pick="mean", within=0.05, floor=0.002),
            Own("loss", r"Train: .*Loss: ([\d.]+)", "metrics|loss|last", within=0.001),
        ),
    ),
    Program(
        "regression-by-hand",  # no optimizer, and an end that depends on the loss
        "main.py",
        steps=None,
        source=_examples("regression"),
        own=(Own("steps", r"after (\d+) batches", "progress|steps_done", within=0.0),),
        folder="regression",
    ),
    Program(
        "mnist-hogwild",
        "main.py --epochs 1 --batch-size 32 --num-processes 2 --log-interval 1",
        steps=20,  # in each of two processes: the report says that there are two, and shows one
        source=_examples("mnist_hogwild"),
        folder="mnist_hogwild",
        modules=("torchvision",),
        data="mnist",
    ),
    Program(
        "lightning-fit",
        "drivers/lightning_fit.py",
        steps=120,
        modules=("lightning",),
        total=120,
    ),
    Program(
        "ignite-run",
        "drivers/ignite_run.py",
        steps=100,
        modules=("ignite",),
        loss=r"Loss: ([\d.]+)",
        own=(Own("loss", r"Loss: ([\d.]+)", "metrics|loss|last", within=0.001),),
    ),
    Program("skorch-fit", "drivers/skorch_fit.py", steps=70, modules=("skorch",)),
    Program("fastai-fit", "drivers/fastai_fit.py", steps=60, modules=("fastai",)),
    Program(
        "keras-torch",
        "drivers/keras_fit.py",
        steps=120,
        modules=("keras",),
        environment=(("KERAS_BACKEND", "torch"),),
        loss=r"loss: ([\d.]+)",
    ),
    Program(
        "keras-jax",
        "drivers/keras_fit.py",
        steps=120,
        modules=("keras", "jax"),
        environment=(("KERAS_BACKEND", "jax"),),
        loss=r"loss: ([\d.]+)",
    ),
    Program(
        "transformers-trainer",
        "drivers/hf_trainer.py",
        steps=60,
        modules=("transformers",),
        own=(
            Own("steps/s", r"'train_steps_per_second': '?([\d.]+)", "steps_per_second"),
            Own("loss", r"'loss': '?([\d.]+)", "metrics|loss|last", within=0.001),
        ),
        loss=r"'loss': '?([\d.]+)",
    ),
    Program(
        "peft-lora-accelerate",
        "drivers/peft_lora.py",
        steps=40,
        modules=("peft", "accelerate"),
        loss=r"loss ([\d.]+)",
    ),
    Program(
        "diffusers-unconditional",
        "drivers/diffusers_uncond.py",
        steps=32,
        modules=("diffusers", "accelerate"),
    ),
    Program(
        "maml-functional",
        "drivers/maml_loop.py",
        steps=18,
        loss=r"loss ([\d.]+)",
        own=(Own("loss", r"loss ([\d.]+)", "metrics|loss|last", within=0.001),),
    ),
    Program("optuna-study", "drivers/optuna_study.py", steps=200, modules=("optuna",)),
    Program(
        "trl-rloo",
        "drivers/trl_rl.py RLOO 20",
        steps=20,
        modules=("trl",),
        own=(GENERATION,),
    ),
    Program(
        "trl-grpo",
        "drivers/trl_rl.py GRPO 20",
        steps=20,
        modules=("trl",),
        own=(GENERATION,),
    ),
    Program(
        "learner-with-server",  # a stand-in for vLLM's server, which is built for GPUs
        "drivers/generation_server.py 40",
        steps=80,
        modules=("openai",),
        loss=r"loss (\S+)",
        own=(GENERATION, Own("completions", r"completions: (\d+)", "completions", within=0.0)),
    ),
    *(
        Program(
            name,
            f"{script} --log-interval 10",
            steps=None,  # until it has solved its task
            source=_examples("reinforcement_learning"),
            folder="reinforcement_learning",
            modules=("gymnasium",),
            loss=r"Average reward: (\S+)",
            own=(Own("episodes", r"Episode (\d+)", "progress|steps_done", floor=10.0),),  # an update each
        )
        for name, script in (("actor-critic", "actor_critic.py"), ("reinforce", "reinforce.py"))
    ),
    Program(
        "sb3-ppo",
        "drivers/sb3_learn.py PPO 2048",
        steps=320,  # 8 rollouts of 10 epochs of 4 minibatches
        env_steps=2048,
        modules=("stable_baselines3",),
    ),
    Program(
        "sb3-dqn",
        "drivers/sb3_learn.py DQN 2000",
        steps=475,  # after each fourth timestep beyond the hundredth
        env_steps=2000,
        modules=("stable_baselines3",),
    ),
    Program("xgboost-train", "drivers/xgboost_train.py", steps=100, modules=("xgboost",)),
    Program("lightgbm-train", "drivers/lightgbm_train.py", steps=100, modules=("lightgbm",)),
    *REPOSITORIES,
    *PACKAGES,
)

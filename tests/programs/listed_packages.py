"""More drivers of the public interfaces of packages: see `listed.py`."""

from __future__ import annotations

from tests.programs.program import Own, Program

TRAINER_LOSS = r"'loss': '?([\d.]+)"

PACKAGES = (
    Program(
        "rl-code",  # generates outside of its optimizer steps
        "drivers/rl_code.py 6",
        steps=24,  # 6 rounds of 4 steps
        modules=("transformers",),
        loss=r"loss (\S+),",
        own=(Own("generation s", r"generation took ([\d.]+) s", "generation_seconds", pick="sum", within=0.05),),
    ),
    Program(
        "ultralytics-yolo",
        "drivers/yolo_train.py",
        steps=18,  # 3 epochs of 6 batches
        modules=("ultralytics",),
        data="imagenet",
    ),
    Program(
        "sentence-transformers",
        "drivers/sentence_train.py",
        steps=60,
        modules=("sentence_transformers", "datasets"),
        loss=TRAINER_LOSS,
        own=(
            Own("steps/s", r"'train_steps_per_second': '?([\d.]+)", "steps_per_second"),
            Own("loss", TRAINER_LOSS, "metrics|loss|last", within=0.001),
        ),
    ),
    Program(
        "ray-train",
        "drivers/ray_fit.py",
        steps=60,
        modules=("ray",),
        loss=r"\bloss ([\d.]+)",
        killed=1,  # Ray ends its worker by force
    ),
    Program(
        "papermill-notebook",
        "-m papermill drivers/papermill_loop.ipynb out.ipynb -p epochs 4 --log-output",
        steps=80,
        modules=("papermill", "ipykernel"),
        loss=r"loss ([\d.]+)",
    ),
)

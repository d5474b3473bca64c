"""A training whose GPU is simulated by the stand-in for NVIDIA's driver: `gpu.py SCENE SECONDS`.

The steps take as long as the simulated clock allows; what else the card says is in the scene. Some scenes also have a
model that is said to be on the card, as the hooks tell it of torch where there is one.
"""

import os
import random
import sys
import threading
import time
from pathlib import Path

import trainhooks as th
from trainhooks import session
from trainhooks.lane_entries import FACTS as KNOWN

FULL = 1980  # MHz
STEP = 0.1  # seconds at full clock
GIB = 2**30
# What changes, when the trouble begins; the clock that the steps follow is among it.
SCENES = {
    "healthy": {},
    "capped_a_little": {"sm_clock": 1905, "power": 698_000, "reasons": "0x4"},
    "thermal": {"sm_clock": 1290, "power": 430_000, "reasons": "0x48", "temperature": 87, "temperature_margin": 0},
    "brake": {"sm_clock": 900, "power": 300_000, "reasons": "0x88"},
    "slowdown": {"sm_clock": 1000, "power": 300_000, "reasons": "0x8"},
    "locked": {"sm_clock": 1200, "power": 350_000, "reasons": "0"},
    "limited": {"sm_clock": 1300, "power": 400_000, "power_limit": 400_000, "reasons": "0x4"},
    "shared": {"processes": f"{os.getpid()}:{60 * GIB} 1:{30 * GIB}"},
    "link": {"pcie_gen": 1, "pcie_width": 4},
    "xid": {"xid": 79},
    "starved": {"utilization": 22, "power": 180_000, "gpm.2": 14, "gpm.3": 6, "gpm.5": 8},
    "in_fp32": {"gpm.5": 0},  # exact fp32 products never run on tensor cores
}
FROM_THE_START = {"locked", "link", "shared", "starved", "in_fp32"}  # set before, by others

ADAMW = {"class": "AdamW", "parameters": 26_000_000, "tensors": 80, "device": "cuda", "fused": None, "foreach": None}
LLAMA = {
    "class": "LlamaForCausalLM",
    "parameters": 26_000_000,
    "trainable_parameters": 26_000_000,
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "attention": "sdpa",
    "dtypes": {"float32": 26_000_000},
}
IN_BF16 = {"optimizer": ADAMW, "model": LLAMA, "autocast": "bfloat16", "torch": {"matmul_precision": "high"}}


def holding(gib):
    """What torch's allocator says of the card's memory."""
    return {"gpu_memory": {"total": 140 * GIB, "peak_allocated": gib * GIB, "retries": 0, "ooms": 0}}


# What is known of the model: a scene of that name without a line above has a card that is well.
MODELS = {
    "starved": IN_BF16,
    "in_fp32": {**IN_BF16, "autocast": "off", "torch": {"matmul_precision": "highest"}},
    "in_tf32": {**IN_BF16, "autocast": "off"},
    "eager": {**IN_BF16, "model": {**LLAMA, "attention": "eager"}},
    "computed_twice": {**IN_BF16, "model": {**LLAMA, "gradient_checkpointing": True}, "torch": holding(20)},
    "full": {**IN_BF16, "torch": holding(138)},
    "roomy": {**IN_BF16, "torch": holding(40)},
    "as_it_should_be": {**IN_BF16, "torch": holding(110)},
}
USUAL = (("forward", 0.32), ("backward", 0.58), ("optimizer", 0.1))
PHASES = {  # shares of a step
    "starved": (("forward", 0.1), ("backward", 0.2), ("simulation", 0.7)),
}


class Driver(threading.Thread):
    """Writes what the driver says: first a healthy card, then the scene."""

    def __init__(self, scene, after):
        super().__init__(daemon=True)
        self.file = Path(os.environ["NVML_STUB"])
        self.base = self.file.read_text()
        self.healthy = {
            "sm_clock": FULL,
            "power": 640_000,
            "reasons": "0x4",  # as is normal on a busy card
            "processes": f"{os.getpid()}:{60 * GIB}",
        }
        self.scene, self.after, self.clock = scene, after, FULL
        self.over = threading.Event()

    def run(self):
        began = time.monotonic()
        while not self.over.wait(0.2):
            self.show(time.monotonic() - began)

    def show(self, now):
        says = {**self.healthy, **(SCENES.get(self.scene, {}) if now >= self.after else {})}
        self.clock = says["sm_clock"]
        new = self.file.with_suffix(".new")
        new.write_text(self.base + "".join(f"gpu0.{key} = {value}\n" for key, value in says.items()))
        new.replace(self.file)


def main():
    scene, seconds = sys.argv[1], float(sys.argv[2])
    driver = Driver(scene, 0 if scene in FROM_THE_START else seconds / 2)
    driver.show(0)
    driver.start()
    noise = random.Random(0)
    steps = round(seconds / STEP)
    th.init(name=f"gpu-{scene}", total_steps=steps)
    if scene in MODELS:
        session.quiet_put()((KNOWN, {"facts": MODELS[scene]}))
    began = time.monotonic()
    for step in th.steps(range(steps)):
        work = STEP * noise.uniform(0.97, 1.03) * FULL / driver.clock
        for phase, share in PHASES.get(scene, USUAL):
            with th.phase(phase):
                time.sleep(share * work)
        th.log(loss=2.5 / (1 + step / 50) + noise.gauss(0, 0.02))
        th.count(tokens=8192, samples=8)
        if time.monotonic() - began > seconds:
            break
    driver.over.set()
    driver.join()


main()

"""Write the data that a public program reads, random and small: `python fake_data.py NAME`, in its directory."""

from __future__ import annotations

import gzip
import pickle
import random
import struct
import sys
from pathlib import Path

WORDS = [first + last for first in ("ba", "do", "ki", "lu", "me", "so", "ta") for last in ("n", "r", "st", "mi", "lo")]


def text(words: int, seed: int = 0) -> str:
    """Lines of ten made-up words."""
    drawn = random.Random(seed)
    lines = (" ".join(drawn.choice(WORDS) for _ in range(10)) for _ in range(words // 10))
    return "\n".join(lines) + "\n"


def nanogpt() -> None:
    """Token files of a vocabulary of 65."""
    folder = Path("data/fake")
    folder.mkdir(parents=True)
    for seed, name in enumerate(("train", "val")):
        drawn = random.Random(seed)
        (folder / f"{name}.bin").write_bytes(struct.pack("<20000H", *(drawn.randrange(65) for _ in range(20000))))
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 65}))


def chargpt() -> None:
    """The text that minGPT's chargpt reads, with the letters of the prompt that it samples from."""
    Path("input.txt").write_text("O God, O God!\n" + text(4000))


def corpus() -> None:
    """The three files of a word-level language model."""
    folder = Path("data/fake")
    folder.mkdir(parents=True)
    for seed, (name, words) in enumerate((("train", 12000), ("valid", 1500), ("test", 1500))):
        (folder / f"{name}.txt").write_text(text(words, seed))


def mnist() -> None:
    """The four files of MNIST, as torchvision keeps them, with 640 and 200 images."""
    for folder in (Path("data/MNIST/raw"), Path("../data/MNIST/raw")):
        folder.mkdir(parents=True, exist_ok=True)
        drawn = random.Random(0)
        for name, count in (("train", 640), ("t10k", 200)):
            images = struct.pack(">4i", 2051, count, 28, 28) + drawn.randbytes(count * 784)
            labels = struct.pack(">2i", 2049, count) + bytes(drawn.randrange(10) for _ in range(count))
            for kind, packed in (("images-idx3", images), ("labels-idx1", labels)):
                (folder / f"{name}-{kind}-ubyte").write_bytes(packed)
                (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(packed))


def imagenet() -> None:
    """Folders of four classes: 48 images for training, 16 to validate."""
    from PIL import Image

    drawn = random.Random(0)
    for part, count in (("train", 12), ("val", 4)):
        for kind in "abcd":
            folder = Path("images", part, kind)
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = drawn.randbytes(64 * 64 * 3)
                Image.frombytes("RGB", (64, 64), pixels).save(folder / f"{number}.png")


if __name__ == "__main__":
    {each.__name__: each for each in (nanogpt, chargpt, corpus, mnist, imagenet)}[sys.argv[1]]()

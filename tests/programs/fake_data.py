"""Write the data that a public program reads, random and small: `python fake_data.py NAME`, in its directory."""

from __future__ import annotations

import gzip
import pickle
import random
import struct
import subprocess
import sys
from array import array
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


def _header(magic: int, *values: int) -> bytes:
    """The 256 integers that each file of llm.c begins with."""
    return struct.pack("<256i", magic, *values, *[0] * (255 - len(values)))


def llmc() -> None:
    """A checkpoint, a tokenizer and token files for llm.c's GPT-2 in C, and the program, built."""
    drawn = random.Random(0)
    rows, vocabulary, layers, heads, width = 64, 256, 4, 4, 64
    matrices = (vocabulary + rows) * width + layers * 12 * width * width
    vectors = layers * 13 * width + 2 * width
    weights = array("f", (drawn.gauss(0.0, 0.02) for _ in range(matrices + vectors)))
    shape = _header(20240326, 3, rows, vocabulary, layers, heads, width, vocabulary)
    Path("gpt2_124M.bin").write_bytes(shape + weights.tobytes())
    letters = b"".join(b"\x02" + bytes(f"{chr(97 + i % 26)}{chr(97 + i // 26)}", "ascii") for i in range(vocabulary))
    Path("gpt2_tokenizer.bin").write_bytes(_header(20240328, 2, vocabulary, 0) + letters)
    folder = Path("dev/data/tinyshakespeare")
    folder.mkdir(parents=True)
    for part, count in (("train", 12000), ("val", 3000)):
        tokens = array("H", (min(int(drawn.expovariate(0.05)), vocabulary - 1) for _ in range(count)))
        (folder / f"tiny_shakespeare_{part}.bin").write_bytes(_header(20240520, 1, count) + tokens.tobytes())
    words = ["gcc", "-O3", "-w", "train_gpt2.c", "-lm", "-o", "train_gpt2"]
    subprocess.run(words, check=True)


def tinystories() -> None:
    """The two token files that an assignment's solution trains on."""
    folder = Path("data/tinystories")
    folder.mkdir(parents=True)
    for seed, (part, count) in enumerate((("train", 20000), ("val", 2000))):
        drawn = random.Random(seed)
        tokens = array("H", (min(int(drawn.expovariate(0.05)), 299) for _ in range(count)))
        (folder / f"{part}.bin").write_bytes(tokens.tobytes())
    Path("cs336_basics-1.0.6.dist-info").mkdir()  # as if it were installed: it asks for its own version
    Path("cs336_basics-1.0.6.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: cs336_basics\nVersion: 1.0.6\n"
    )


def names() -> None:
    """The words that makemore learns to spell, one a line."""
    drawn = random.Random(0)
    made = ("".join(drawn.choice(WORDS) for _ in range(drawn.randint(1, 3))) for _ in range(2000))
    Path("names.txt").write_text("\n".join(made) + "\n")


def enwik8() -> None:
    """95 million bytes of text, as many as the script cuts into training and validation data."""
    Path("data").mkdir(exist_ok=True)
    page = text(100000).encode()
    with gzip.open("data/enwik8.gz", "wb", compresslevel=1) as file:
        for _ in range(95_000_000 // len(page) + 1):
            file.write(page)


def carvana() -> None:
    """Twenty-four images of 32 by 32 and their masks of two classes."""
    from PIL import Image

    drawn = random.Random(0)
    for kind in ("imgs", "masks"):
        Path("data", kind).mkdir(parents=True, exist_ok=True)
    for number in range(24):
        Image.frombytes("RGB", (32, 32), drawn.randbytes(32 * 32 * 3)).save(f"data/imgs/{number}.png")
        Image.frombytes("L", (32, 32), bytes(drawn.randrange(2) for _ in range(32 * 32))).save(
            f"data/masks/{number}.png"
        )


def nanochat() -> None:
    """A tokenizer of bytes and two files of documents, where NANOCHAT_BASE_DIR says."""
    import pyarrow
    import pyarrow.parquet
    import tiktoken
    import torch

    names = ["bos", *(f"{who}_{end}" for who in ("user", "assistant", "python", "output") for end in ("start", "end"))]
    special = {f"<|{name}|>": 256 + number for number, name in enumerate(names)}
    ranks = {bytes([value]): value for value in range(256)}
    encoding = tiktoken.Encoding("bytes", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens=special)
    base = Path("base")
    for folder in ("tokenizer", "base_data_climbmix"):
        (base / folder).mkdir(parents=True)
    (base / "tokenizer/tokenizer.pkl").write_bytes(pickle.dumps(encoding))
    torch.save(torch.tensor([1] * 256 + [0] * len(special), dtype=torch.int32), base / "tokenizer/token_bytes.pt")
    for number in range(2):
        table = pyarrow.table({"text": [text(100, seed) for seed in range(200 * number, 200 * number + 200)]})
        pyarrow.parquet.write_table(table, base / f"base_data_climbmix/shard_{number:05d}.parquet", row_group_size=50)


WRITERS = (nanogpt, chargpt, corpus, mnist, imagenet, llmc, tinystories, names, enwik8, carvana, nanochat)

if __name__ == "__main__":
    {each.__name__: each for each in WRITERS}[sys.argv[1]]()

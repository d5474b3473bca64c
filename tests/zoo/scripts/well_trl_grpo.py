"""TRL's GRPO on a character model, with a reward that differs from answer to answer."""

import random
import tempfile

from datasets import Dataset
from texts import tiny_llama
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

characters = "0123456789+-=? "
plain = Tokenizer(
    models.WordLevel({"<pad>": 0, "<end>": 1, **{c: i for i, c in enumerate(characters, 2)}}, unk_token="<pad>")
)
plain.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
plain.decoder = decoders.Fuse()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<end>", padding_side="left")


def digits(prompts, completions, **_):
    return [sum(c.isdigit() for c in completion) / 8 for completion in completions]


random.seed(0)
data = Dataset.from_list([{"prompt": f"{random.randrange(10)}+{random.randrange(10)}="} for _ in range(32)])
with tempfile.TemporaryDirectory() as directory:
    model = tiny_llama(width=16)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(f"{directory}/model")
    config = GRPOConfig(
        directory,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=6,
        max_steps=25,
        logging_steps=1,
        learning_rate=1e-3,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    GRPOTrainer(f"{directory}/model", digits, args=config, train_dataset=data, processing_class=tokenizer).train()

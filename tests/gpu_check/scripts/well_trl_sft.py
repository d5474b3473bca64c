"""Healthy: TRL's SFTTrainer on texts that are tokens already, packed to one length, bf16."""

import tempfile

import torch
from common import options
from datasets import Dataset
from hf import Clock
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

given = options()
length, rows, vocab = (8, 2, 64) if given.cpu else (1024, 8, 16384)
width, layers = (32, 1) if given.cpu else (1024, 16)
words = {"<pad>": 0, "<end>": 1, **{f"w{place}": place for place in range(2, vocab)}}
plain = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<end>")
config = LlamaConfig(
    vocab_size=vocab, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
    num_attention_heads=4 if given.cpu else 16, max_position_embeddings=length, pad_token_id=0, eos_token_id=1,
    bos_token_id=None,
)  # fmt: skip


with tempfile.TemporaryDirectory() as directory:
    texts = torch.randint(2, vocab, (16 if given.cpu else 256, length)).tolist()
    arguments = SFTConfig(
        directory, max_steps=10**5, per_device_train_batch_size=rows, bf16=not given.cpu, use_cpu=given.cpu,
        max_length=length, save_strategy="no", logging_steps=10, report_to="none", disable_tqdm=True,
        gradient_checkpointing=False, optim="adamw_torch_fused",
    )  # fmt: skip
    SFTTrainer(
        LlamaForCausalLM(config), args=arguments, train_dataset=Dataset.from_dict({"input_ids": texts}),
        processing_class=tokenizer, callbacks=[Clock(given, rows)],
    ).train()  # fmt: skip

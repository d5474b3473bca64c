"""sentence-transformers' trainer on a tiny BERT with random weights, as its guide shows."""

import tempfile

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.models import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = [f"word{number}" for number in range(60)]
torch.manual_seed(0)
tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(["[PAD]", "[UNK]", *WORDS])}, "[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
with tempfile.TemporaryDirectory() as directory:
    BertModel(BertConfig(vocab_size=62, **shape)).save_pretrained(directory)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32
    ).save_pretrained(directory)
    words = Transformer(directory)
    model = SentenceTransformer(modules=[words, Pooling(64)], device="cpu")
    sentences = [" ".join(WORDS[(7 * i + j) % 60] for j in range(8)) for i in range(320)]
    pairs = Dataset.from_dict({"anchor": sentences, "positive": [text[:-7] for text in sentences]})
    arguments = SentenceTransformerTrainingArguments(
        directory, num_train_epochs=3, per_device_train_batch_size=16, logging_steps=1, save_strategy="no",
        report_to=[], use_cpu=True, dataloader_pin_memory=False, disable_tqdm=True, seed=0,
    )  # fmt: skip
    SentenceTransformerTrainer(model, arguments, pairs, loss=MultipleNegativesRankingLoss(model)).train()

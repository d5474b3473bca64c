"""What the scripts with Hugging Face's trainers share."""

import torch
from common import Meter
from transformers import TrainerCallback


class Packed(torch.utils.data.Dataset):
    """Texts packed to one length."""

    def __init__(self, vocab, length):
        self.data = torch.randint(vocab, (512, length))

    def __len__(self):
        return 10**6

    def __getitem__(self, place):
        return {"input_ids": self.data[place % 512], "labels": self.data[place % 512]}


class Clock(TrainerCallback):
    """Ends a training of so many samples a step when its time is over."""

    def __init__(self, given, rows, warm=5):
        self.meter, self.rows = Meter(given, warm), rows

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = self.meter.over(self.rows)

    def on_train_end(self, args, state, control, **kwargs):
        self.meter.tell()

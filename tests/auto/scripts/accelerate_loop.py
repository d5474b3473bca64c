"""A plain loop with accelerate: accumulation, a scheduler, an evaluation each epoch."""

import hf_tiny
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

truth = hf_tiny.Truth()
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
rows = hf_tiny.encoded(33)
model = hf_tiny.model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
training = DataLoader(rows[:25], batch_size=3, shuffle=True, collate_fn=hf_tiny.padded)
validation = DataLoader(rows[25:], batch_size=4, collate_fn=hf_tiny.padded)
model, optimizer, training, validation, scheduler = accelerator.prepare(
    model, optimizer, training, validation, scheduler
)
for _ in range(2):
    model.train()
    for batch in training:
        with accelerator.accumulate(model):
            truth.batch(batch)
            loss = model(**batch).loss
            accelerator.backward(loss)
            truth.steps += accelerator.sync_gradients
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        truth.loss(loss.item())
    model.eval()
    for batch in validation:
        with torch.no_grad():
            truth.loss(model(**batch).loss.item())
truth.tell()

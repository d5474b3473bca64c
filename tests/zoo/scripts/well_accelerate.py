"""A loop with accelerate: accumulation, a scheduler, an evaluation each epoch, its own checkpoint at the end."""

import tempfile

import torch
from accelerate import Accelerator
from texts import block_dataset, pad_batch, tiny_llama
from torch.utils.data import DataLoader


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    rows = block_dataset(700, 48)
    train_dataloader = DataLoader(rows[:640], batch_size=8, shuffle=True, collate_fn=pad_batch)
    eval_dataloader = DataLoader(rows[640:], batch_size=16, collate_fn=pad_batch)
    model = tiny_llama(width=48)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 80)
    model, optimizer, train_dataloader, eval_dataloader, scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, scheduler
    )
    for epoch in range(2):
        model.train()
        for batch in train_dataloader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        losses = []
        for batch in eval_dataloader:
            with torch.no_grad():
                losses.append(accelerator.gather(model(**batch).loss))
        accelerator.print(f"epoch {epoch}: eval loss {torch.stack(losses).mean().item():.4f}")
    with tempfile.TemporaryDirectory() as directory:
        accelerator.save_state(directory)


if __name__ == "__main__":
    main()

"""A text model that is far from the speed that was promised for it."""

import torch
from texts import block_dataset, pad_batch, tiny_llama
from torch.utils.data import DataLoader

model = tiny_llama(width=64)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
loader = DataLoader(block_dataset(320, 64), batch_size=4, collate_fn=pad_batch, shuffle=True)
for step, batch in enumerate(loader, 1):
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if step % 20 == 0:
        print(f"step {step}/{len(loader)}: loss {loss.item():.3f}")

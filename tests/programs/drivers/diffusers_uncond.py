"""The loop of diffusers' guide "Train a diffusion model", on random images."""

import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=16, block_out_channels=(32, 32), down_block_types=("DownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "UpBlock2D"), layers_per_block=1,
)  # fmt: skip
scheduler = DDPMScheduler(num_train_timesteps=1000)
loader = DataLoader(torch.rand(64, 3, 16, 16), batch_size=8, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
schedule = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=4, num_training_steps=len(loader) * 4)
accelerator = Accelerator(cpu=True)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
global_step = 0
for epoch in range(4):
    progress_bar = tqdm(total=len(loader), disable=not accelerator.is_local_main_process)
    progress_bar.set_description(f"Epoch {epoch}")
    for images in loader:
        noise = torch.randn(images.shape)
        timesteps = torch.randint(0, 1000, (images.shape[0],), dtype=torch.int64)
        noisy = scheduler.add_noise(images, noise, timesteps)
        with accelerator.accumulate(model):
            predicted = model(noisy, timesteps, return_dict=False)[0]
            loss = torch.nn.functional.mse_loss(predicted, noise)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        progress_bar.update(1)
        logs = {"loss": loss.detach().item(), "lr": schedule.get_last_lr()[0], "step": global_step}
        progress_bar.set_postfix(**logs)
        global_step += 1

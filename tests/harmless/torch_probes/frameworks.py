"""Frameworks: transformers, accelerate, trl, lightning, datasets, torchmetrics. Random models of a few weights."""

from __future__ import annotations

from tests.harmless.torch_probes.made import TORCH, probes

TINY = (
    TORCH
    + """
os.environ.update(HF_HUB_OFFLINE='1', TOKENIZERS_PARALLELISM='false', WANDB_DISABLED='true')
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
config = LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    max_position_embeddings=32,
)
model = LlamaForCausalLM(config)
rows = [{'input_ids': torch.arange(n % 5, n % 5 + 8), 'labels': torch.arange(n % 5, n % 5 + 8)} for n in range(24)]
def arguments(**more):
    return TrainingArguments(
        'out',
        max_steps=6,
        per_device_train_batch_size=4,
        logging_steps=2,
        report_to=[],
        disable_tqdm=True,
        save_strategy='no',
        use_cpu=True,
        **more,
    )
def shown(logs): return {k: v for k, v in logs.items() if 'time' not in k and 'per_second' not in k}
"""
)
TRANSFORMERS = {
    "the order of a Trainer's callbacks": """
class Own(TrainerCallback):
    def __getattribute__(self, name):
        if name.startswith('on_'): print(name)
        return super().__getattribute__(name)
trainer = Trainer(model, arguments(), train_dataset=rows, callbacks=[Own()]); trainer.train()
print([shown(l) for l in trainer.state.log_history])
""",
    "a Trainer's list of callbacks": """
trainer = Trainer(model, arguments(), train_dataset=rows)
print([type(c).__name__ for c in trainer.callback_handler.callbacks if 'Trainmon' not in type(c).__name__])
trainer.train()
print(
    trainer.callback_handler.callback_list.count('\\n') >= 1,
    type(trainer.pop_callback(transformers.PrinterCallback)).__name__,
    len(transformers.trainer.DEFAULT_CALLBACKS) >= 1,
)
""",
    "what a Trainer saves": """
given = arguments(); given.save_strategy = transformers.trainer_utils.SaveStrategy.STEPS; given.save_steps = 3
trainer = Trainer(model, given, train_dataset=rows); trainer.train(); import json
for folder in sorted(os.listdir('out')): print(folder, sorted(os.listdir('out/' + folder)))
state = json.load(open('out/checkpoint-6/trainer_state.json'))
print({k: v for k, v in state.items() if k != 'log_history'}); import shutil; shutil.rmtree('out')
""",
    "a Trainer that resumes": """
given = arguments(); given.save_strategy = transformers.trainer_utils.SaveStrategy.STEPS; given.save_steps = 3
trainer = Trainer(model, given, train_dataset=rows); trainer.train()
again = Trainer(LlamaForCausalLM(config), given, train_dataset=rows)
print(
    again.train(resume_from_checkpoint='out/checkpoint-3').training_loss.hex(),
    again.state.global_step,
    torch.equal(model.lm_head.weight, again.model.lm_head.weight),
)
import shutil; shutil.rmtree('out')
""",
    "how often a Trainer asks a data set": """
class Counted(torch.utils.data.Dataset):
    asked = []
    def __len__(self): self.asked.append('len'); return 24
    def __getitem__(self, n): self.asked.append(n); return rows[n]
Trainer(model, arguments(data_seed=1), train_dataset=Counted()).train(); print(Counted.asked)
""",
    "evaluation, metrics and predictions": """
trainer = Trainer(
    model,
    arguments(eval_strategy='steps', eval_steps=3),
    train_dataset=rows,
    eval_dataset=rows[:8],
    compute_metrics=lambda p: {'size': float(p.predictions.size)},
)
trainer.train(); print([shown(l) for l in trainer.state.log_history])
print(trainer.predict(rows[:4]).predictions.sum().item().hex(), shown(trainer.evaluate()))
""",
    "a Trainer with its own steps": """
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **more):
        print('loss', sorted(inputs)); return super().compute_loss(model, inputs, return_outputs, **more) * 2
    def training_step(self, *args, **more):
        result = super().training_step(*args, **more); print('step', result.item().hex(), len(args), sorted(more))
        return result
    def log(self, logs, *args, **more): print('log', sorted(shown(logs)), len(args)); super().log(logs, *args, **more)
    def create_optimizer(self, *a): print('optimizer'); return super().create_optimizer(*a)
Own(model, arguments(gradient_accumulation_steps=2), train_dataset=rows).train()
""",
    "an error in a callback, and one in a model": """
import traceback
class Own(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        if state.global_step == 4: raise KeyError('stop')
try: Trainer(model, arguments(), train_dataset=rows, callbacks=[Own()]).train()
except KeyError as error:
    print(error, [(os.path.basename(f.filename), f.name) for f in traceback.extract_tb(error.__traceback__)])
unknown = torch.tensor([99])
try: Trainer(model, arguments(), train_dataset=[{'input_ids': unknown, 'labels': unknown}] * 8).train()
except IndexError as error: print(error, [f.name for f in traceback.extract_tb(error.__traceback__)][-3:])
""",
    "generate in and after a training": """
optimizer = torch.optim.AdamW(model.parameters()); start = torch.tensor([[1, 2, 3]])
for n in range(5):
    loss = model(start, labels=start).loss; loss.backward(); optimizer.step(); optimizer.zero_grad()
    print(loss.item().hex(), model.generate(start, max_new_tokens=4, do_sample=n % 2 == 1, pad_token_id=0).tolist())
class Stop(transformers.StoppingCriteria):
    def __call__(self, ids, scores, **more): print(ids.shape, sorted(more)); return torch.tensor([ids.shape[1] > 5])
print(
    model.generate(start, stopping_criteria=[Stop()], num_beams=2, max_new_tokens=8, pad_token_id=0).tolist(),
    model.generate.__qualname__,
    model.generate.__doc__[:20],
)
""",
    "save_pretrained and from_pretrained": """
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    model(rows[0]['input_ids'][None], labels=rows[0]['labels'][None]).loss.backward(); optimizer.step()
    optimizer.zero_grad()
model.save_pretrained('saved'); print(sorted(os.listdir('saved')))
again, found = LlamaForCausalLM.from_pretrained('saved', output_loading_info=True)
print(
    found['missing_keys'],
    torch.equal(again.lm_head.weight, model.lm_head.weight),
    transformers.AutoConfig.from_pretrained('saved').hidden_size,
    transformers.AutoModelForCausalLM.from_pretrained('saved').dtype,
)
try: transformers.AutoModel.from_pretrained('absent')
except OSError as error: print(str(error)[:50])
""",
    "schedules and optimizers of transformers": """
optimizer = transformers.Adafactor(model.parameters(), lr=1e-3, relative_step=False)
rate = transformers.get_cosine_schedule_with_warmup(optimizer, 2, 6)
for n in range(6):
    loss = model(rows[n]['input_ids'][None], labels=rows[n]['labels'][None]).loss; loss.backward(); optimizer.step()
    rate.step(); optimizer.zero_grad(); print(loss.item().hex(), rate.get_last_lr())
transformers.set_seed(3); print(torch.rand(1), transformers.enable_full_determinism.__name__)
""",
    "outputs, gradient checkpointing and hooks of a model": """
model.gradient_checkpointing_enable(); model.enable_input_require_grads()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1); model.train()
for n in range(5):
    out = model(**{k: v[None] for k, v in rows[n].items()}, output_hidden_states=True); out.loss.backward()
    optimizer.step(); optimizer.zero_grad()
    print(out.loss.item().hex(), list(out.keys()), len(out.hidden_states), type(out).__name__)
print(
    model.num_parameters(),
    model.is_gradient_checkpointing,
    model.get_memory_footprint(),
    model.dtype,
    model.device,
    model.config.to_diff_dict() == model.config.to_diff_dict(),
)
""",
    "loggers and warnings of transformers": """
import logging
transformers.logging.set_verbosity_info(); logger = transformers.logging.get_logger('transformers.own')
logger.info('one'); logger.warning_once('two'); logger.warning_once('two')
trainer = Trainer(model, arguments(), train_dataset=rows)
print(
    transformers.logging.get_verbosity(),
    [h.__class__.__name__ for h in logging.getLogger('transformers').handlers],
    logging.root.handlers,
)
""",
}
ACCELERATE = {
    "accelerate: accumulation and clipping": """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net, own, made, rate = accelerator.prepare(model, optimizer, loader, torch.optim.lr_scheduler.StepLR(optimizer, 1))
for x, y in made:
    with accelerator.accumulate(net):
        loss = nn.functional.mse_loss(net(x), y); accelerator.backward(loss)
        if accelerator.sync_gradients: accelerator.clip_grad_norm_(net.parameters(), 1.0)
        own.step(); rate.step(); own.zero_grad()
        print(loss.item().hex(), accelerator.sync_gradients, own.step_was_skipped, rate.get_last_lr())
print(
    type(net).__name__,
    type(own).__name__,
    type(made).__name__,
    accelerator.state,
    sorted(set(vars(accelerator.unwrap_model(net))) - {'_compiled_call_impl'})[:3],
)
""",
    "accelerate: saved states and gathered values": """
from accelerate import Accelerator, utils
accelerator = Accelerator(cpu=True, project_dir='.'); utils.set_seed(4)
net, own, made = accelerator.prepare(model, optimizer, loader)
for n, (x, y) in enumerate(made):
    loss = net(x).sum(); accelerator.backward(loss); own.step(); own.zero_grad()
    n == 3 and accelerator.save_state('state')
print(
    sorted(os.listdir('state')),
    accelerator.load_state('state'),
    net(x).sum().item().hex(),
    accelerator.gather(loss).shape,
    accelerator.gather_for_metrics(y).shape,
    len(list(accelerator.skip_first_batches(made, 6))),
)
import shutil; shutil.rmtree('state'); accelerator.free_memory(); print(accelerator.__class__.prepare.__qualname__)
""",
    "datasets: map, formats and a loader": """
import datasets
datasets.disable_progress_bars()
table = datasets.Dataset.from_dict({'x': [[float(n), 1.0, 2.0, 3.0] for n in range(16)]}); calls = []
def change(row, n): calls.append(n); return {'y': [row['x'][0] * 2]}
table = table.map(change, with_indices=True).with_format('torch')
print(
    len(calls),
    table.features,
    table.column_names,
    table._fingerprint == table.map(lambda r: r)._fingerprint,
    datasets.Dataset.map.__qualname__,
)
for batch in torch.utils.data.DataLoader(table, batch_size=4):
    loss = nn.functional.mse_loss(model(batch['x']), batch['y']); loss.backward(); optimizer.step()
    optimizer.zero_grad(); print(loss.item().hex(), sorted(batch))
""",
    "torchmetrics in a loop": """
import torchmetrics
metric = torchmetrics.MetricCollection([torchmetrics.MeanSquaredError(), torchmetrics.MeanAbsoluteError()])
for x, y in loader:
    out = model(x); loss = nn.functional.mse_loss(out, y); loss.backward(); optimizer.step(); optimizer.zero_grad()
    print({k: v.item().hex() for k, v in metric(out.detach(), y).items()})
print(
    {k: v.item().hex() for k, v in metric.compute().items()},
    metric['MeanSquaredError']._update_count,
    len(list(metric.modules())),
)
""",
    "safetensors and huggingface_hub": """
from safetensors.torch import load_model, save_file, save_model
import huggingface_hub
print(train()); save_model(model, 'model.safetensors'); print(load_model(model, 'model.safetensors'), train())
class Net(nn.Linear, huggingface_hub.PyTorchModelHubMixin): pass
net = Net(4, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader: net(x).sum().backward(); own.step(); own.zero_grad()
net.save_pretrained('hub')
print(
    sorted(os.listdir('hub')),
    torch.equal(Net.from_pretrained('hub', in_features=4, out_features=1).weight, net.weight),
)
""",
}
LIGHTNING_BEGIN = (
    TORCH
    + """
import logging, warnings; warnings.filterwarnings('ignore')
logging.getLogger('lightning.pytorch').setLevel(logging.ERROR)
import lightning as L
class Net(L.LightningModule):
    def __init__(self): super().__init__(); self.layer = nn.Linear(4, 1)
    def training_step(self, batch, n): loss = self.layer(batch).pow(2).mean(); self.log('loss', loss); return loss
    def validation_step(self, batch, n): self.log('val', self.layer(batch).sum())
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4)
def trainer(**more):
    return L.Trainer(
        max_epochs=2,
        accelerator='cpu',
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **more,
    )
"""
)
LIGHTNING = {
    "lightning: the order of all hooks": """
seen = []
class Own(L.Callback): pass
for name in dir(L.Callback):
    if name.startswith('on_'): setattr(Own, name, (lambda n: lambda self, *a, **k: seen.append(n))(name))
trainer(callbacks=[Own()], limit_train_batches=3, limit_val_batches=1).fit(Net(), loader, loader); print(seen)
""",
    "lightning: loggers and what they are given": """
class Own(L.pytorch.loggers.logger.Logger):
    name, version = 'own', 0
    def log_metrics(self, metrics, step=None): print('metrics', step, {k: float(v).hex() for k, v in metrics.items()})
    def log_hyperparams(self, *args, **more): print('hyper', args)
L.Trainer(
    max_epochs=2,
    accelerator='cpu',
    logger=Own(),
    log_every_n_steps=3,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Net(), loader, loader)
""",
    "lightning: checkpoints and resumed fits": """
saved = L.pytorch.callbacks.ModelCheckpoint('saved', save_last=True, monitor='val')
one = L.Trainer(
    max_epochs=2,
    accelerator='cpu',
    logger=False,
    callbacks=[saved],
    enable_progress_bar=False,
    enable_model_summary=False,
)
one.fit(Net(), loader, loader)
print(
    sorted(os.listdir('saved')),
    sorted(torch.load('saved/last.ckpt', weights_only=False)),
    [type(c).__name__ for c in one.callbacks],
)
two = trainer(); two.fit(net := Net(), loader, ckpt_path='saved/last.ckpt')
print(two.global_step, two.current_epoch, net.layer.weight.tolist())
import shutil; shutil.rmtree('saved')
""",
    "lightning: manual optimization and two optimizers": """
class Manual(Net):
    automatic_optimization = False
    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters(), lr=0.01), torch.optim.Adam(self.parameters())]
    def training_step(self, batch, n):
        for own in self.optimizers():
            loss = self.layer(batch).pow(2).mean(); own.zero_grad(); self.manual_backward(loss); own.step()
            print(type(own).__name__, loss.item().hex())
one = trainer(limit_train_batches=3); one.fit(Manual(), loader); print(one.global_step, one.callback_metrics)
""",
    "lightning: how often a data set is asked": """
class Counted(torch.utils.data.Dataset):
    asked = []
    def __len__(self): self.asked.append('len'); return 12
    def __getitem__(self, n): self.asked.append(n); return torch.ones(4)
trainer().fit(Net(), torch.utils.data.DataLoader(Counted(), batch_size=4)); print(Counted.asked)
""",
    "lightning: errors and interrupts": """
class Bad(Net):
    def training_step(self, batch, n):
        if n == self.bad: raise self.error
        return super().training_step(batch, n)
import traceback
for error in (ValueError('bad'), StopIteration()):
    net = Bad(); net.bad, net.error = 3, error; one = trainer()
    try: one.fit(net, loader); print('ended', one.state.status)
    except BaseException as found:
        print(type(found).__name__, one.state.status, one.global_step)
        print([f.name for f in traceback.extract_tb(found.__traceback__)])
""",
    "lightning: plain Fabric": """
fabric = L.Fabric(accelerator='cpu', devices=1); model = nn.Linear(4, 1)
net, own = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1)); made = fabric.setup_dataloaders(loader)
for x in made:
    loss = net(x).pow(2).mean(); own.zero_grad(); fabric.backward(loss); own.step()
    print(loss.item().hex(), type(net).__name__, type(own).__name__)
fabric.save('state.ckpt', {'net': net, 'own': own})
print(fabric.load('state.ckpt', {'net': net}), sorted(vars(own))[:3])
""",
}

PROBES = (
    *probes("transformers", TRANSFORMERS, before=TINY, short=False),
    *probes("accelerate, data", ACCELERATE, short=False),
    *probes("lightning", LIGHTNING, before=LIGHTNING_BEGIN, short=False),
)

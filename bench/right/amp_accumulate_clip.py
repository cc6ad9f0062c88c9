import torch
from torch import nn
from torch.amp import GradScaler, autocast

torch.manual_seed(32)
gradient_accumulation_steps = 2
model = nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = GradScaler("cpu", init_scale=512.0)
train_loader = [(torch.randn(2, 3), torch.randint(3, (2,))) for _ in range(7)]

for epoch in range(2):
    model.train()
    for step, (x, y) in enumerate(train_loader):
        with autocast("cpu", enabled=False):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            loss = loss / gradient_accumulation_steps
        scaler.scale(loss).backward()
        if (step + 1) % gradient_accumulation_steps == 0 or (step + 1) == len(train_loader):
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.2)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

result = list(model.parameters())

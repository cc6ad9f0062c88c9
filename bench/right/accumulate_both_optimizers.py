import torch
from torch import nn

torch.manual_seed(116)
vision, text = nn.Linear(4, 2), nn.Linear(3, 2)
opt_vision = torch.optim.SGD(vision.parameters(), lr=0.1)
opt_text = torch.optim.SGD(text.parameters(), lr=0.1)
update_freq = 2
pairs = [(torch.randn(3, 4), torch.randn(3, 3)) for _ in range(7)]
for epoch in range(2):
    for step, (image, caption) in enumerate(pairs):
        logits = vision(image) @ text(caption).T
        loss = nn.functional.cross_entropy(logits, torch.arange(3)) / update_freq
        loss.backward()
        if (step + 1) % update_freq == 0 or step == len(pairs) - 1:
            torch.nn.utils.clip_grad_norm_(vision.parameters(), 0.5)
            torch.nn.utils.clip_grad_norm_(text.parameters(), 0.5)
            opt_vision.step()
            opt_text.step()
            opt_vision.zero_grad()
            opt_text.zero_grad()
result = [*vision.parameters(), *text.parameters()]

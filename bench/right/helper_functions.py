import torch
import torch.nn.functional as F


def zero_all(*optimizers):
    for o in optimizers:
        o.zero_grad()


def step_all(*optimizers):
    for o in optimizers:
        o.step()


def backward_and_clip(loss, modules, max_norm):
    loss.backward()
    for m in modules:
        torch.nn.utils.clip_grad_norm_(m.parameters(), max_norm)


torch.manual_seed(53)
enc, dec = torch.nn.Linear(3, 2), torch.nn.Linear(2, 3)
enc_opt = torch.optim.Adam(enc.parameters(), lr=0.01)
dec_opt = torch.optim.Adam(dec.parameters(), lr=0.01)

for it in range(5):
    x = torch.randn(4, 3)
    zero_all(enc_opt, dec_opt)
    loss = F.mse_loss(dec(torch.tanh(enc(x))), x)
    backward_and_clip(loss, (enc, dec), 0.1)
    step_all(enc_opt, dec_opt)

result = [*enc.parameters(), *dec.parameters()]

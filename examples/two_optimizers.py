"""An encoder and a decoder with one optimizer each, both cleared: each step uses its own gradient.

It prints:

    last step of the decoder: own |grad| 0.23, used 0.23
"""

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Linear(4, 2)
decoder = nn.Linear(2, 4)
encoder_opt = torch.optim.SGD(encoder.parameters(), lr=0.05)
decoder_opt = torch.optim.SGD(decoder.parameters(), lr=0.05)
batches = torch.randn(40, 16, 4)

for x in batches:
    encoder_opt.zero_grad()
    decoder_opt.zero_grad()
    loss = (decoder(encoder(x)) - x).pow(2).mean()
    (own,) = torch.autograd.grad(loss, decoder.weight, retain_graph=True)
    loss.backward()
    used = decoder.weight.grad.norm().item()
    encoder_opt.step()
    decoder_opt.step()

print(f"last step of the decoder: own |grad| {own.norm():.2f}, used {used:.2f}")

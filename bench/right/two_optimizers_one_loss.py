"""An encoder and a decoder with one optimizer each, and one backward for both."""

import torch
from torch import nn, optim

torch.manual_seed(14)
encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)
encoder_optimizer = optim.SGD(encoder.parameters(), lr=0.1)
decoder_optimizer = optim.SGD(decoder.parameters(), lr=0.05)


def train(input_tensor, criterion=nn.MSELoss()):
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    code = encoder(input_tensor)
    loss = criterion(decoder(code), input_tensor)
    loss.backward()
    encoder_optimizer.step()
    decoder_optimizer.step()
    return loss.item()


losses = []
for it in range(6):
    losses.append(train(torch.randn(3, 4)))

result = list(encoder.parameters()) + list(decoder.parameters())

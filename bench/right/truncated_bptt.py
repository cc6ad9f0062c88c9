import torch
from torch import nn

torch.manual_seed(85)
cell = nn.LSTMCell(1, 4)
readout = nn.Linear(4, 1)
params = [*cell.parameters(), *readout.parameters()]
optimizer = torch.optim.Adam(params, lr=0.02)
signal = torch.sin(torch.arange(33) / 3).unsqueeze(1)
h, c = torch.zeros(1, 4), torch.zeros(1, 4)
K = 8

for chunk in range(4):
    h, c = h.detach(), c.detach()
    loss = torch.zeros(())
    for t in range(chunk * K, (chunk + 1) * K):
        h, c = cell(signal[t : t + 1], (h, c))
        loss = loss + (readout(h) - signal[t + 1]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 0.5)
    optimizer.step()

result = params

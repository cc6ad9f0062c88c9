"""accelerate: one line around the loop watches it. The loop never clears, so a finding is logged.

Needs accelerate. It prints:

    ZG101 stale-gradient
"""

import torch
from accelerate import Accelerator

from zerograd.integrations.accelerate import watch_gradients

torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
inputs = torch.rand(32, 2)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(inputs, batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
with watch_gradients(accelerator) as report:  # this line watches
    for x in loader:
        loss = torch.nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        accelerator.backward(loss)
        optimizer.step()
for finding in report.findings:
    print(finding.code, finding.name)

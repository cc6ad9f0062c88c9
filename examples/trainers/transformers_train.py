"""transformers: one callback watches `Trainer.train()`. The model clears nothing, so a finding is logged.

Needs transformers and accelerate. It prints:

    ZG101 stale-gradient
"""

import tempfile

import torch
from transformers import Trainer, TrainingArguments

from zerograd.integrations.transformers import WatchGradients


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, features, labels):
        guess = self.layer(features)
        return {"loss": torch.nn.functional.mse_loss(guess, labels), "logits": guess}

    def zero_grad(self, set_to_none=True):
        pass  # the trainer clears by this method: this is the mistake


torch.manual_seed(0)
inputs = torch.rand(32, 2)
rows = [{"features": row, "labels": row.sum(dim=0, keepdim=True)} for row in inputs]
watch = WatchGradients()
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        disable_tqdm=True,
        logging_strategy="no",
        num_train_epochs=2,
        per_device_train_batch_size=4,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
    )
    trainer = Trainer(Line(), arguments, train_dataset=rows, callbacks=[watch])  # this line watches
    trainer.train()
for finding in watch.report.findings:
    print(finding.code, finding.name)

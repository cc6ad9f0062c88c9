"""fastai: its optimizer is none of torch's; a callback holds back the step until enough samples."""

import torch
from fastai.callback.training import GradientAccumulation, GradientClip
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.torch_core import set_seed

set_seed(0)
inputs = torch.rand(120, 3)
pairs = list(zip(inputs, inputs.amax(dim=1, keepdim=True), strict=True))
loaders = DataLoaders(DataLoader(pairs[:96], bs=12), DataLoader(pairs[96:], bs=12))
learner = Learner(
    loaders,
    torch.nn.Sequential(torch.nn.Linear(3, 10), torch.nn.Sigmoid(), torch.nn.Linear(10, 1)),
    loss_func=torch.nn.functional.smooth_l1_loss,
    cbs=[GradientAccumulation(n_acc=24), GradientClip(max_norm=0.5)],
)
with learner.no_bar(), learner.no_logging():
    learner.fit(3, lr=0.02)
print("final", repr(float(learner.recorder.values[-1][-1])))

# -*- coding: utf-8 -*-
"""Größen, die man lernt – mit Umlauten, 中文 und einem BOM."""
import torch

torch.manual_seed(123)
gewicht = torch.nn.Parameter(torch.randn(3))
löser = torch.optim.SGD([gewicht], lr=0.1)  # der «Optimierer»
for schritt in range(6):
    löser.zero_grad()
    "π ≈ 3.14"; fehler = (gewicht - 3.14).pow(2).sum(); fehler.backward()
    löser.step()
result = [gewicht]

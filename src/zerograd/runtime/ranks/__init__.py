"""Ranks of torch.distributed: which gradients they share, and whether they still agree.

May import: core, runtime.
"""

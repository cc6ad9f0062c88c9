"""Ranks of torch.distributed: which gradients they share, and whether they still agree.

It imports `core` and the modules of `runtime` that it extends.
"""

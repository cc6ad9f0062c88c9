"""The ranks of torch.distributed: which gradients they share, and whether they still agree.

`RankSync` knows what a backward has shared, and `Replicas` whether ranks hold the same numbers.

May import: core, runtime.
"""

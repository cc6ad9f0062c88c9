"""The reader of runs: listens to torch, looks at gradients where it must, and posts events.

`watch` is the way in; `patches` is the only module that changes torch.

May import: core, rules, fold, recording, terminal, processes, runtime.ranks.
"""

"""The reader of runs: listens to torch, looks at gradients where it must, and posts events.

`watch` is the way in; `patches` is the only module that changes torch. Nothing is sampled: on the
usual path no gradient is read, and every backward that meets used gradients is looked at. An error
inside zerograd ends the watching, never the run.

May import: core, rules, fold, recording, terminal, processes, runtime.ranks.
"""

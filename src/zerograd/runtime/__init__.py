"""Watches a run: turns what torch does into events, and looks at gradients where that is needed.

It gives `watch`, the public API. `engine` patches torch once (`patches`, the only module that changes
torch) and has a `Watcher`, which hands each call of torch to its parts. Nothing is sampled: on the
usual path no gradient is read, and every backward that meets used gradients is looked at. An error
inside zerograd ends the watching, never the run.

May import: core, rules, fold, recording, terminal, processes, runtime.ranks.
"""

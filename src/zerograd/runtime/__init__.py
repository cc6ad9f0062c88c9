"""The reader of runs: watches what torch does to gradients and tells it to the rules."""

"""Turns a sequence of events, from a live run or from a recording, into findings, without torch.

`Judge` moves each subject from state to state, and reports what breaks a rule.

May import: core.
"""

"""The state machine of gradients: events, what they do to a state, what a rule and a finding are.

It has the types and the few helpers that all other packages share.

May import: nothing of zerograd.
"""

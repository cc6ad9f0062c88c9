"""The state machine of gradients: events, what they do to a state, what a rule and a finding are.

It gives the types that all other packages share.

May import: nothing of zerograd.
"""

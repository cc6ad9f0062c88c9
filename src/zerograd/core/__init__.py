"""The state machine of gradients: events, what they do to a state, what a rule and a finding are.

It gives the words that every other package speaks.

May import: nothing of zerograd.
"""

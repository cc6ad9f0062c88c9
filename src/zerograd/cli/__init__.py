"""The command `zerograd`: one module per command, with `add` (its options) and `run` (its answer).

A module is loaded when its command is asked for, so that the command line answers at once.

May import: core, rules, report, check, runtime, launch, learn.
"""

"""The command `zerograd`: one module per subcommand, with `add` (its options) and `run`.

A module is loaded when its subcommand is called, so that the command starts fast.

May import: core, rules, report, check, runtime, launch, learn, server.
"""

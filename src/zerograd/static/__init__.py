"""The reader of source code: from a file to findings, without importing or running it.

`check_file` is the way in. `read` parses, `interp` turns a syntax tree into a flow of events, and
`analyse` explores the flow.

What cannot be known is unknown, and no rule reports an unknown state: gradients at the start of a
function, an optimizer that an unseen function gets, generators, recursion, calls deeper than ten.
With several optimizers, an optimizer is reported only for a loss that must reach its parameters.

May import: core, rules, explore, static.frameworks, static.read, static.interp.
"""

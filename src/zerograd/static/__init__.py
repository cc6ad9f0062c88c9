"""The reader of source code: from a file to findings, without importing or running it.

`check_file` is the way in. `read` parses, `interp` turns a syntax tree into a flow of events, and
`analyse` explores the flow.

May import: core, rules, explore, static.frameworks, static.read, static.interp.
"""

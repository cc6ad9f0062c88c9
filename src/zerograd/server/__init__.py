"""Servers for editors and coding agents: the findings of `zerograd check` while the code is written.

`agent_server.serve` speaks the Model Context Protocol, and `language_server.serve` the Language Server
Protocol, both on standard input and output. A second thread speaks to the editor; the main thread checks, so
that a check can be interrupted and has its time limit.

May import: check, core, fix, learn, report, rules, static, static.read.
"""

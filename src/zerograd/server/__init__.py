"""The language server: the findings of `zerograd check` in an editor, while the code is written.

It gives `language_server.serve`, which speaks the Language Server Protocol on standard input and output. A
second thread speaks it; the main thread checks, so that a check can be interrupted and has its time limit.

May import: check, core, fix, rules, static, static.read.
"""

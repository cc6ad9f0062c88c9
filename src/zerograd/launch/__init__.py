"""Runs a script and watches it, replays a recording, writes the web page of a run.

`run_session`, `replay` and `html_report` are the ways in. `boot` watches the processes that a script starts, and
those whose environment asks for it (`start_file`).

May import: core, rules, fold, recording, report, terminal, static, static.read, fix, processes, runtime.
"""

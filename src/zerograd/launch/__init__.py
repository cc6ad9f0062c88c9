"""Runs a script under watch, replays a recording, makes the page of a run.

It gives `run_session`, `replay` and `html_report`; `boot` reaches the processes that a script starts.

May import: core, rules, fold, recording, report, terminal, static, processes, runtime.
"""

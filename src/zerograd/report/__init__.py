"""Renders a report: text, JSON, SARIF, GitHub, GitLab, HTML. Data in, text out.

`formats` lists them: a format is one module with a function `render`, and one line there.

May import: core, rules.
"""

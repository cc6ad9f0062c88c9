"""Renders a report: text, JSON, SARIF, GitHub, GitLab, JUnit, HTML. Data in, text out.

A format is one module with a function `render`, and one line in `formats`.

May import: core, rules.
"""

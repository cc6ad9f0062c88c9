"""Renders a report: text, JSON, SARIF, GitHub, GitLab, HTML. Data in, text out.

May import: core.
"""

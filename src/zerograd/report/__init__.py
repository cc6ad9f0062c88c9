"""Renderers: pure functions from a report to text. They see findings, decide nothing, print nothing."""

"""Reads source files: text, notebooks, the project's modules, and an index of what each one says.

It gives modules, positions, the vocabulary of names and the values an interpreter works with.

May import: core, explore, static.frameworks.
"""

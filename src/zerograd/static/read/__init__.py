"""Reads source files: text, notebooks, the project's modules, and an index of what each one says.

It has modules, positions, the vocabulary of names, and the values that the interpreter works with.

May import: core, explore, static.frameworks.
"""

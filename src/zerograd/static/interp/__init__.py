"""Interprets a syntax tree abstractly: statements, expressions and calls become a flow of effects.

It gives the flow of one function, method or module.

May import: core, explore, static.read.
"""

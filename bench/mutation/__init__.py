"""Breaks correct training code: the mutation operators, and the runs that show their effect."""

"""What libraries do to gradients, one table each: what their classes are, what their calls do.

May import: core.
"""

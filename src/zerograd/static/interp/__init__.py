"""Interprets a syntax tree abstractly: what the code does to gradients becomes a flow of acts.

`interpreter.Interpreter` gives the flow of a module's top level, or of one function and all that it
calls. It runs nothing, and has its parts as attributes; each part gets those below it that it uses:

    environment                                  variables, objects, and the loops and calls around
    emitter < evaluator                          the flow that is built; from a node to who knows its kind
    names < objects < call_graph                 what names, classes and attributes hold; what calls what
    conditions · effects < constructors          tests as expressions, acts on gradients, new objects
    functions                                    functions of the project, interpreted in place
    framework_calls                              what the tables of static.frameworks say
    gradient_calls · step_calls < library_calls · registered_hooks < calls
    assignments < expressions · loops · contexts < statements
    interpreter

Expressions hold calls, calls run functions, functions hold statements: that circle closes in the tables of
the evaluator, which the interpreter fills. A new kind of node is a method and a line in `handlers`.

May import: core, explore, static.frameworks, static.read.
"""

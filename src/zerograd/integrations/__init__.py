"""zerograd where people train: pytest, notebooks, and the trainers of other libraries.

One module per place. Each imports its library, which is not a dependency of zerograd, and says clearly
if it is missing or too old. `import zerograd` loads none of them.

May import: core, rules, report, static, static.read, runtime, launch.
"""

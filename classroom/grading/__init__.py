"""From a learner's notebook to marks, each step a module.

`graft`: the answers, with what they need of other cells (`needs`), put into the trusted notebook. `run`: that notebook
under nbval, in a process of its own, of which `plugin` is our part. `mark`: what came back, as outcomes and points.
`report`: tables, and the commands `course check` and `course progress`. `graded`: what graded cells print.
"""

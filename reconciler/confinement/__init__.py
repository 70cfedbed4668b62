"""What every VMM is held to, and the judging of what was read about one. Pure.

Takes declared facts (isolation, sizes, paths) and gives a `Policy`; takes a `Policy` and a
`Reading` and gives `Fact`s with a verdict each. No file, clock, process or environment is touched
here, so the same inputs give the same answer. Imports only `reconciler.errors` of the package.
"""

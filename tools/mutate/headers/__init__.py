"""Mutants of the C headers, and the tests that must notice them.

``python -m tools.mutate.headers`` takes these steps:

1. Copy the working tree with its compiled extensions. The tool never writes to the tree itself.
2. Run all listed tests once without a mutant. Each must pass.
3. For each mutant, change the header in a copy and run its tests. If a test uses the extension modules, those that
   include the header are compiled first. The mutant is killed if each of its tests fails.

The modules of this package list the mutants as texts: most changes of atomic operations cannot be derived from a syntax
tree. A mutant without effect is a comment there.

The exit code is 1 if a mutant was not killed.
"""

"""Mutation testing: change one place of a Python module of the product, and see whether a test fails.

``python -m tools.mutate --most 40`` takes these steps:

1. List the mutants of all modules of msgq and visionipc, or of `--files`, and draw a sample (`--most`, `--seed`).
2. Copy the working tree with its compiled extensions. The tool never writes to the tree itself.
3. Run the tests of `make test` once under coverage.py, and note which tests execute which lines of the sampled files.
   For files with lines that no test executes, also run the tests marked `ci`: the lake and Spark have few others.
4. For each mutant, run the tests that execute its lines, until one fails.

The report has these counts, and a line ``file:line: old -> new`` for each mutant that was not killed:

=========== ===========================================================================================
killed      a test failed, or the tests crashed or could not be imported
survived    all tests passed: a test is missing, or the mutant behaves as the original does
not reached no test executes the line in its own process; child processes of tests are not measured
timed out   the tests took much longer than without the mutant
no time     the time limit `--seconds` came first
not run     the tests do not run without the mutant either; the exit code is 1
=========== ===========================================================================================

Survivors do not change the exit code. If the tests ran on no mutant, the exit code is 1.

mutmut 3.8 does not fit: it runs pytest several times in one process and forks it, which breaks tests with shared
memory. cosmic-ray 8.7 does not fit, by its documentation: it runs the same tests on all mutants and drops no statement.
"""

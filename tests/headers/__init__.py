"""Unit tests of the C headers (`steps.h`): a test lets another participant act between any two accesses."""

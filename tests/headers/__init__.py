"""Unit tests of the headers in C (`steps.h`): a test decides what happens between any two accesses to shared memory."""

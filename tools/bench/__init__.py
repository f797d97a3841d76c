"""Measures the library beside its peers, a floor in C, and the machine's limits: ``python -m tools.bench``."""

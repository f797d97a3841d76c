"""Steady rates, histograms, children that end with their parent, safe texts: for the demo, benchmarks and verbs."""

"""Code that all packages share: endpoint names, units, schemas, permissions, optional packages, rates, histograms."""

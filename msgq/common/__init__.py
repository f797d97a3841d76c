"""What all boxes share: names of endpoints, units, schemas, permissions, optional packages, rates, histograms."""

"""The memory behind frames: mappings, leases."""

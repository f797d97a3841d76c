"""Programs that use msgq, and tests that run them; each is explained in docs."""

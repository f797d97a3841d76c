"""Code that all kinds share: atomics, liveness, sleeping, files. It depends on no kind."""

"""Code that all kinds share: atomics, liveness, sleeping, files. This package depends on no kind."""

"""The bytes of NumPy's structured scalars, where they are: asking NumPy for them takes ten times as long as a write."""

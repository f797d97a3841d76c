"""What setup.py builds with: the list of the extension modules, and the docstrings of their members."""

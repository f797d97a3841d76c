"""Records endpoints into files."""

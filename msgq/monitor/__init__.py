"""Measurements of endpoints and of this machine, for the command line: stages, doctor, benchmark."""

"""Measurements of endpoints and of this machine, which the command shows: stages, checks of the doctor, benchmark."""

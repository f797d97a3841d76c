"""Files of object stores and of distributed file systems, named by URLs."""

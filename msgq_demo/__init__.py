"""A small system that uses all of msgq, as an example. `msgq demo` starts it.

`roles.py` lists the programs. `publishers.py` and `subscribers.py` contain them, and each runs in its own process.
`run.py` starts, kills and stops the processes, and records them. `results.py` checks and prints the results, and
`replaying.py` plays the recording into new programs.
"""

"""A soak: processes that come, go, are killed and stopped at random, and books that must balance.

``python -m tools.chaos --seconds 900`` ends with a table and 0, or with 1, what broke, and the seed. Each publisher
notes in memory that outlives it which messages it made and which were sent; each message says which life sent it, as
its how-many-th, and which number it has in the topic. So a subscriber knows of every message whether it was sent, is
whole and comes at its place, and of every gap how many messages it must have lost. Other processes use all five kinds
at once; `kinds` has one file for each, with what it checks.
"""

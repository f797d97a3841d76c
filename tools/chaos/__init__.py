"""A soak test: processes start, leave, are killed and are stopped at random; a checker reads their history at the end.

``python -m tools.chaos --seconds 900`` prints a table and ends with 0, or with 1, the errors and the seed. Each process
is an incarnation with a number. Its record of the history is in memory that outlives it: the messages that it made, and
the messages whose sending returned. A message names its incarnation, its index there, and its number in the topic. So a
subscriber knows for each message whether it was sent, is intact and in order, and for each gap how many messages are
lost. Other processes use all five kinds at once; `kinds` has one file for each, with its checks.
"""

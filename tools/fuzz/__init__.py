"""A fuzzer of hostile bytes: whatever a stranger writes, calls return, raise an IpcError, or count a loss.

======== ==============================================================================================================
level    what is hostile
======== ==============================================================================================================
core     a topic's two files, under the C core: publishers, subscribers, and a meter, a recorder and event loops
channels the words of a channel's file and pools
gates    the words of a gate
leases   the table of leases that a server of frames shares with its clients
logs     files of MCAP, mutated, under the scan of recordings
messages of CDR and ROS 1, more or less, taken apart by any plan
queues   the words of a work queue
records  the words of a vector or board
sockets  a topic's two files, under the real sockets, while another process scribbles
frames   what clients ask a server of frames, what a server answers, and its packets
======== ==============================================================================================================

All but the last two are C on memory whose neighbours fault, built with the address and undefined behaviour sanitizers.
``python -m tools.fuzz --seconds 60 --seed 1`` runs all.
"""

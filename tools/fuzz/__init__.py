"""A fuzzer of hostile bytes: whatever a stranger writes in a segment, calls return, raise an IpcError, or count a loss.

Two levels: `sockets` drives the real sockets on a real topic while another process scribbles, `core` drives the C core
on memory whose neighbours fault. ``python -m tools.fuzz --seconds 60 --seed 1`` runs both.
"""

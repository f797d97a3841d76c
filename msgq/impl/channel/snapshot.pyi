"""Read a channel's files for msgq.stats and `Channel.diagnose`; for channelfile.pyx alone."""

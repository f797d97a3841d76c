"""Work queues over shared memory: each message goes to one consumer, the highest priority first."""

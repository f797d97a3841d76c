"""The source "msgq": recordings and the bus as tables and streams, and results back to the bus."""

"""The Spark source "msgq": recordings and the bus as tables and streams, and publishing of results."""

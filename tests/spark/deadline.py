"""How long tests wait for Spark."""

DEADLINE = 300  # seconds for one step, which may start a Java while other programs take the cores

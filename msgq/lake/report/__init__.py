"""The page about a lake: figures, plots, pictures. It reads the tables of gold; there is no Spark in it.

Needs the extra `report`.
"""

from msgq.common.optional import require

require("msgq.lake.report", "report", "pyarrow", "deltalake", "plotly")

"""The page about a lake: figures, plots, pictures. It reads the tables of gold; there is no Spark in it.

Needs the extra `report`.
"""

from msgq.common.optional import require_extra

require_extra("msgq.lake.report", "report", "pyarrow", "deltalake", "plotly")

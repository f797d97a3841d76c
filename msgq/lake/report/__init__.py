"""HTML page about a lake: numbers, plots and pictures, from the gold tables, without Spark.

Needs the extra `report`.
"""

from msgq.common.optional import require_extra

require_extra("msgq.lake.report", "report", "pyarrow", "deltalake", "plotly")

"""Lakes without Spark: locations and content of the tables.

Needs the extra `lake`.
"""

from msgq.common.optional import require_extra

require_extra("msgq.lake", "lake", "pyarrow", "deltalake")

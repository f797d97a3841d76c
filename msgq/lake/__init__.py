"""Lakes without Spark: where the tables of recordings lie, and what is in them.

Needs the extra `lake`.
"""

from msgq.common.optional import require_extra

require_extra("msgq.lake", "lake", "pyarrow", "deltalake")

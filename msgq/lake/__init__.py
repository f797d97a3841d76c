"""Lakes without Spark: where the tables of recordings lie, and what is in them.

Needs the extra `lake`.
"""

from msgq.common.optional import require

require("msgq.lake", "lake", "pyarrow", "deltalake")

"""Messages as tables, Parquet, pandas and text."""

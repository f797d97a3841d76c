"""Fleet tables: the gold tables of many lakes, one table for all lakes."""

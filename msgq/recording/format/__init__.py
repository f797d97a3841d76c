"""A recording's file: MCAP, read where it is damaged and written as it grows."""

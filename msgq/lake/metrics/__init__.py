"""Metrics of messages: functions of Arrow tables, independent of lakes and their files."""

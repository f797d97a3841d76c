"""Figures of messages: functions of Arrow tables, which know nothing of lakes and their files."""

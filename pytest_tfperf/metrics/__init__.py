"""Metrics and tables: functions of the evidence of one profile."""

"""Traces and HLO modules in other tools' formats."""

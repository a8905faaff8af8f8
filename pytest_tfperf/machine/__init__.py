"""The machine that measures: description, conditions, cores, locks and clocks."""

"""Cells of tables by the keys of their columns."""


def cells(table, *keys):
    """For each row the cell of one column, or a tuple of the cells of several."""
    rows = [tuple(record[key] for key in keys) for record in table.records()]
    return [row[0] for row in rows] if len(keys) == 1 else rows

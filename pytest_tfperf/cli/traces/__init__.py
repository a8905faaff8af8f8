"""Commands on traces: one by one with progress, or thousands by many workers."""

"""Keras loops as steps: their call, data, epochs and callbacks."""

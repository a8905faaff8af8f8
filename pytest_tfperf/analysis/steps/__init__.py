"""Steps of a trace and the parts of their time."""

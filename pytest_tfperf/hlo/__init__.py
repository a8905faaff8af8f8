"""XLA's programs: values, decoding, parsing, printing, and the cost of instructions."""

"""HLO modules: decoding, parsing, printing, costs, layouts."""

"""Lower the functions of a step to HLO."""

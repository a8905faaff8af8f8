"""Rules of the TPU op guide, applied to HLO modules."""

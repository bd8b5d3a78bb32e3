"""Algorithm 1: the loop, the ridge, the start, the half-sweep, records and checkpoints."""

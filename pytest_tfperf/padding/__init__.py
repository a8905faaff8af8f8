"""Memory and matrix-unit work that a TPU wastes on shapes that do not fill their tiles."""

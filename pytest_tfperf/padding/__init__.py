"""How much memory and matrix-unit work the tiled layouts of a TPU waste on shapes that do not fill their tiles."""

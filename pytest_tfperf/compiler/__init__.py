"""Read functions, graphs and HLO of a step from TensorFlow's runtime and compilers."""

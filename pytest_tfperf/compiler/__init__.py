"""What TensorFlow's compilers did while the steps ran."""

"""The frameworks that run steps: TensorFlow and JAX, by one interface."""

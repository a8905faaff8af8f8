"""Run the user's steps through the windows of a profile, with TensorFlow's profiler."""

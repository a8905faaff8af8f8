"""Forms of `tf_profile` besides a step that it calls."""

"""`tf_profile.workers`: the workers of a MultiWorkerMirroredStrategy on this machine."""

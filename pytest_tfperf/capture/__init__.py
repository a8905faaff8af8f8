"""Running the user's steps: windows, profiler sessions, Keras loops, and what machine they ran on."""

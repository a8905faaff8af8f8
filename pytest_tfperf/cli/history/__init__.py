"""The command `tfperf history`, and the settings of the project that it runs in."""

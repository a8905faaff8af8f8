"""The subcommands of `tfperf`, one module for what each kind of input has."""

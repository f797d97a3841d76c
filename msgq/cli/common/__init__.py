"""Common code of the subcommands: options, printing, signals."""

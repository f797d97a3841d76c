"""What `msgq demo` runs: this machine's telemetry between processes, measured."""

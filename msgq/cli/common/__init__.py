"""What the verbs share: options, printing, signals."""

"""Where messages are taken from, whatever the kind of endpoint: what recorder and meter stand on."""

from msgq.impl.sources.source import Source, open_source

__all__ = ["Source", "open_source"]

"""What nobody alive needs any more, of each kind, and how it is removed; clean and doctor go through `table.CLEANERS`.

Nothing is removed that somebody may be using. Whoever has mapped a file keeps what is mapped: only its name goes.

Prefixes are those of `naming.resolve_prefix`, "" for none. Functions that remove can be asked what they would do.
"""

"""The compiled part: who holds which buffer, and the work of each frame."""

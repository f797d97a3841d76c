"""Frames: contract, interplay with stock, hostile peers, stress."""

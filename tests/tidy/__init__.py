"""Counts that keep the tree tidy: prose, lengths, error classes, imports and docs code blocks.

    python -m tests.tidy                  counts per room
    python -m tests.tidy files kafka      counts per file of a room; of all without a room
    python -m tests.tidy lines kafka      every sentence that is counted, with its file and line
    python -m tests.tidy lower kafka      record the lower counts of a room; of all without a room
    python -m tests.tidy code             long files and functions, misplaced error classes

`tests/test_tidy.py` compares the counts with `tests/tidy/ratchet.toml`. That file has one line per
room, so that people who lower different rooms do not edit the same line. `lower` never raises a
number of a room that is on the list; a new room joins the list with its present counts.
"""

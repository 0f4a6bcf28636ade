"""Times and sizes of dsh: `python -m benchmarks` prints the table of what we promise and what we measure."""

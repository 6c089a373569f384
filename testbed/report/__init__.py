"""From the files of a run to numbers, pictures and one self-contained report."""

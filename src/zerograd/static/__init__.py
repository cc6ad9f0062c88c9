"""The reader of source: from a file to the findings in it, without running any of it."""

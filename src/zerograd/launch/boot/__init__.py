"""The directory that stands in the path of the processes that a watched program starts."""

"""What several test modules share: commands, programs, sequences of events, ranks, pages."""

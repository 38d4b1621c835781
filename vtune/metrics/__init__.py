"""From records to numbers, always by source."""

"""Everything a user may hand over, turned into checked entries with labels."""

"""Whatever a user hands over, made into checked entries with labels."""

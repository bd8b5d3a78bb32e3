"""Side features of rows, columns and observations: reading, encoding and storing."""

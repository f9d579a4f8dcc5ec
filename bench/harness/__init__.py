"""What the measuring scripts are made of: sessions, processes, results."""

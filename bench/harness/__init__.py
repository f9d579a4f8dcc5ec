"""What the measuring scripts are made of: sessions, processes, conditions, figures."""

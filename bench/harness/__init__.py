"""What bench/pairs.py is made of: processes, conditions, figures."""

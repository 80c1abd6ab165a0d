"""What large problems need: several devices, orders of many rows, compiled programs kept on disk."""

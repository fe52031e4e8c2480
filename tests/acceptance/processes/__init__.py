"""What stands around a test: workers in processes of their own, and links that are slow or break."""

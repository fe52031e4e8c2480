"""The rules that need the store. RPC handlers and loops are the two doors to them, and hold no rules of their own."""

"""The wire: the only importer of grpc and of the generated stubs. Everything here runs on the private io thread."""

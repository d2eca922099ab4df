"""What benchmarks of the service share: the servers that they compare, and the load that they put on them."""

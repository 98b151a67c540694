"""Methods that see an ensemble as a hypergraph: its base clusters are hyperedges over the objects."""

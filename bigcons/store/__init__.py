"""What users open: Ensemble, PairTable, Consensus and Features, each with its form in a store."""

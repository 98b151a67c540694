"""What consensus methods share: the estimator contract, passes, starts, memory plan, checkpoints."""

"""A plain reference of the mixture of multinomials: one E-step in loops."""

import math

MISSING = -1


def posteriors(labels, shares, theta):
    """Return responsibilities and the log-likelihood; ``theta[k][u][label]``, ``shares[k]``."""
    responsibilities, log_likelihood = [], 0.0
    for row in labels:
        if all(label == MISSING for label in row):
            responsibilities.append(None)
            continue
        joint = [
            share * math.prod(own[u][label] for u, label in enumerate(row) if label != MISSING)
            for share, own in zip(shares, theta, strict=True)
        ]
        total = sum(joint)
        responsibilities.append([value / total for value in joint])
        log_likelihood += math.log(total)
    return responsibilities, log_likelihood

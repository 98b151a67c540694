"""Labels from memberships, one at a time."""


def draw_labels(memberships, draws):
    """Return the first cluster whose cumulative membership exceeds the draw; None without memberships."""
    labels = []
    for row, row_draws in zip(memberships, draws, strict=True):
        total = sum(row)
        labels.append([draw_one(row, total, draw) for draw in row_draws])
    return labels


def draw_one(row, total, draw):
    if total == 0:
        return None
    reached = 0.0
    for cluster, membership in enumerate(row):
        reached += membership
        if reached / total > draw:
            return cluster
    raise AssertionError("the draw is not below one")

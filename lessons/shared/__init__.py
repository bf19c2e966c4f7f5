"""What several lessons use: how a network that a learner wrote is watched and judged, and the sources of claims."""

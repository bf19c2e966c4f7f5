"""What several lessons use: looks at networks that learners wrote, training on digits, many cards, sources, figures."""

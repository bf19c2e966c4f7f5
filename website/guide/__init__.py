"""The field guide: what fits. Training steps of published models, traced, on the cards of the catalogue.

`models` says what is trained, `settings` how; `build` traces every step and writes `answers.json.xz`; `read` looks
answers up, and `page` makes one HTML page of them. `python -m website.guide` builds the answers anew.
"""

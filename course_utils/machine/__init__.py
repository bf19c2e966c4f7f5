"""The machine: devices and links with their sources, the predicted time of a step, and times measured here."""

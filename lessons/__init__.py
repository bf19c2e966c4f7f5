"""The lessons, one folder a topic; `contents.txt` says in which order, and under which number."""

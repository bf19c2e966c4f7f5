"""What an answer did, as data, and the same program run again on values that the answer never saw.

`recorder` writes a record while an answer runs, `form` is what a record may look like, `replayer` runs it, `guards` are
the operators that would trust their arguments. A record is believed in nothing: whoever writes one by hand that passes
has written a program that answers the question.
"""

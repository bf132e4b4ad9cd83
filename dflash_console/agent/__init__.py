"""The program that runs on a host: it reads the host and says what changed, by the pipes it was started with.

It is shipped over the link as source, named `dflash_agent` there, and needs only the standard library of
Python 3.8. `boot` makes it importable, `main` is its loop, `section` says what a part of it looks like,
`child` runs what may hang.
"""

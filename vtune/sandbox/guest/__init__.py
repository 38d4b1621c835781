"""What runs inside the sandbox: the fork server and the sessions forked from it.

The fork server loads this package as `guest`, so its modules import each other relatively and nothing else
of vtune; a session cannot reach anything that the trainer knows.
"""

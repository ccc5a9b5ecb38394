"""Stand-ins for the commands that we run on GPU hosts: documented output, documented exit codes.

Each module has `run(call) -> Answer`. A stand-in refuses what it does not know, as the real command
would refuse an unknown option; it never accepts and ignores.
"""

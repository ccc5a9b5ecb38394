"""What runs inside pods of the lab that are processes: a pod's view of its node and of the network.

Imports nothing of the lab's servers: every pod pays for what it imports with its start.
"""

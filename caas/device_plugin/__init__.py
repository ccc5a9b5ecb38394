"""The device plugin of one host: gives the kubelet the GPUs that leases give to pods, and no others.

`python -m caas.device_plugin`, one per host. What is given is decided in
`gpuclusters.device_plugin.decide`; here are the kubelet's sockets, the leases, and the clock.

A GPU cannot be in two answers: an answer is sent only after `holder.allocated` of each lease went from
false to true in a compare-and-swap that this very request made.
"""

"""The device plugin of one host: gives the kubelet the GPUs that leases give to pods, and no others.

What is given is decided in `gpuclusters.device_plugin.decide`. A GPU cannot be in two answers: an answer is
sent only after this very request swapped `holder.allocated` of each lease from false to true.
"""

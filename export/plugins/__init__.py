"""The CUDA kernels, the order of their weights, and how both are compiled."""

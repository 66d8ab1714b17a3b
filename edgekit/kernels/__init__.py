"""Launch descriptions of the CUDA kernels under export/plugins, shared by every executor."""

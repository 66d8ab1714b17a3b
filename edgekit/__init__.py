"""edgekit: NVIDIA Nemotron hybrid models on Jetson, DGX Spark and the laptop in front of you."""

__version__ = "0.1.0"

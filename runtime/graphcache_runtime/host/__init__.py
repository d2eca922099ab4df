"""The path of cold experts: computed by the host, in buffers that are kept."""

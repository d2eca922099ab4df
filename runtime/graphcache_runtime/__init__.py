"""Runs MoE layers with compiled graphs: buckets, packing, expert graphs, hot sets, toolchains, the compile worker."""

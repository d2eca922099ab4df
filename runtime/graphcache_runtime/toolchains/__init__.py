"""The compilers: base.py says what each must do; one file each does it; registry.py finds them."""

"""Hot weights on the device: what is there, when it must be sent again, and the sending."""

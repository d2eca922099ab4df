"""The command line: one file a command. Commands of the service and the runtime join by entry point."""

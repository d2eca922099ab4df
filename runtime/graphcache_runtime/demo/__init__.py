"""The main job as one command: a service, a compile worker and two training nodes, each a process of its own."""

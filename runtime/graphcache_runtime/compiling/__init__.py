"""One compile: a child process, its limits, the judgement of its end, the check of its graph."""

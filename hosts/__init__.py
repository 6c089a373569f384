"""What runs in a host's namespace: transport cores, the lockstep job, and the agent process that drives both."""

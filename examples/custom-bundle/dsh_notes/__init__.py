"""A notebook for dsh: a service, a tool that uses it, and a bundle that mounts both."""

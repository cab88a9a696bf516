"""The worker of modelfarm: it runs models and reports what it saw. The farm decides what that means."""

PROTOCOL = 1

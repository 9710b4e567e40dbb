"""The Spark jobs that move aged records down: plan, claim, execute, commit, clean."""

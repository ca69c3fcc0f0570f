"""What is asked for docs/learners.md, the answers, and the page itself."""

"""Who has which GPU, until when, and what is done to it before somebody else gets it."""

"""Forms of a block that exist because a CPU is slow at the plain one.

`models.block` chooses among them; nothing else calls them.
"""

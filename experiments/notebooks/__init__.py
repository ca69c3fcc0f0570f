"""Five lessons, each a script that Jupytext pairs with an executed notebook."""

"""What the accountant is compared with: the enumerator, the printed theorem."""

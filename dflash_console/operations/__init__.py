"""What an operator does on hosts, for screen and command line alike. The only door to a change on a host."""

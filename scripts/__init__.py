"""What is run by hand or by `make`: generators of code and pages, and measurements."""

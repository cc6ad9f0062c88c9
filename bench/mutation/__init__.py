"""Right training code, broken: the operators, and the runs that tell what they did."""

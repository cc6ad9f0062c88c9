"""`zerograd learn`: a course on gradients in which every number is computed by torch there and then."""

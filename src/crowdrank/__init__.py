"""crowdrank."""

"""The consensus model of a project: fits, the plan of labels, disputes and charts."""

"""Quality of search systems from many labels and few expert grades."""

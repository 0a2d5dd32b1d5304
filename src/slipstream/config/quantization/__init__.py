"""What a checkpoint declares about quantised weights, read and written. What is stored is the loader's to see."""

"""gradmux: coded gradients from serverless workers, several models side by side."""

"""What all pieces stand on: order, life, sleep, files. It knows no piece."""

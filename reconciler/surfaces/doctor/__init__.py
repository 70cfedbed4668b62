"""What the doctor found, as a person reads it and as programs do."""

"""Gold: tables of results about messages, built hour by hour."""

"""Rules about torch's older interfaces of AMP, and Apex."""

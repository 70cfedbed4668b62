"""When: a folder of Boxfiles, watched, and each sandbox given a pass whenever something may differ.

The scan of the folder is the truth and every event only a reason to scan. What is wanted of a name
follows from the scan and from what is recorded, by pure functions; the engine does it. One bad
file, one slow build, one failing sandbox or a full disk holds up nothing else. Reads no sandbox's
insides; knows nothing of who asks.
"""

"""Who asks: the command line. Thin; every decision is made below.

Errors become exit codes and messages here and nowhere else.
"""

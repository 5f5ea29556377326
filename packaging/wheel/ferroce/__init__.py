"""Ferroce, a software RoCEv2 NIC. The program `ferroce` is beside this interpreter.

    python -m ferroce run -- pytest
"""
